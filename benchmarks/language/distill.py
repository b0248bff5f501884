"""Perplexity of a smaller language model before and after distillation.

    python -m benchmarks language-distill MODEL --calibrate valid.txt --judge test.txt

The tokens to train on are those that the model is calibrated on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import interpress
from benchmarks.language.text import load_model, perplexity, windows
from benchmarks.provenance import machine_name
from benchmarks.tables import table


def main(words: list[str] | None = None) -> None:
    """Measure every budget, and print the table."""
    options = _parse(words)
    model, tokenizer = load_model(options.model)
    model = model.to(options.device)
    tokens = windows(tokenizer, options.calibrate, options.sequences, options.length)
    judged = windows(tokenizer, options.judge, options.windows, options.window)
    whole = perplexity(model, judged)
    analysis = interpress.analyze(model, tokens)
    rows = []
    for budget in options.budgets:
        start = analysis.compress(flops=budget, same_widths=options.same_widths)
        before = perplexity(start.model, judged) / whole
        result = start.distill(minutes=options.minutes)
        after = perplexity(result.model, judged) / whole
        done = result.network.distillation
        assert done is not None
        rows.append(
            (
                f"{result.flops:.2f}", str(tokens.numel()), f"{options.minutes:g}",
                str(done.steps), f"{before:.3f}", f"{after:.3f}",
            )
        )  # fmt: skip
        print(*rows[-1], done, flush=True)
    header = ("FLOPs", "tokens", "minutes", "steps", "perplexity before", "after")
    print(f"Perplexity over the original's ({whole:.2f}), ", end="")
    print(f"on {machine_name(torch.device(options.device))}")
    print(table(header, rows))


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks language-distill",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="model folder, or a GGUF file")
    parser.add_argument("--calibrate", type=Path, required=True, help="text to train on")
    parser.add_argument("--judge", type=Path, required=True, help="text to judge on")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.8])
    parser.add_argument("--same-widths", action="store_true")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--sequences", type=int, default=128, help="to train on")
    parser.add_argument("--length", type=int, default=512, help="tokens of each")
    parser.add_argument("--windows", type=int, default=100, help="to judge on")
    parser.add_argument("--window", type=int, default=1024, help="tokens of each")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(words)

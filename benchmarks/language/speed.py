"""How fast a smaller language model reads a prompt and decodes, beside the original.

    python -m benchmarks language-speed MODEL --calibrate valid.txt

The model is compressed with widths that are multiples of 64, and without a refit: speed depends on
widths only. Both networks run in turn, with one sequence and with several.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import interpress
from benchmarks.language.text import load_model, windows
from benchmarks.provenance import machine_name
from benchmarks.tables import table


def main(words: list[str] | None = None) -> None:
    """Measure every batch size at every budget, and print the table."""
    options = _parse(words)
    model, tokenizer = load_model(options.model)
    model = model.to(options.device, getattr(torch, options.dtype))
    tokens = windows(tokenizer, options.calibrate, options.sequences, options.length)
    analysis = interpress.analyze(model, tokens)
    method = interpress.Method(allocation="measured", refit=False)
    rows = []
    for budget in options.budgets:
        result = analysis.compress(flops=budget, round_to=options.round_to, method=method)
        for batch in options.batches:
            speed = result.speed(batch=batch, prompt=options.prompt, tokens=options.tokens)
            rates = [batch * options.tokens / seconds for seconds in speed.decode]
            rows.append(
                (
                    f"{result.flops:.2f}", str(batch),
                    *(f"{1000 * seconds:.0f}" for seconds in speed.prefill),
                    f"{speed.prefill_ratio:.2f}", *(f"{rate:.0f}" for rate in rates),
                    f"{speed.decode_ratio:.2f}",
                )
            )  # fmt: skip
            print(*rows[-1], flush=True)
    header = (
        "FLOPs", "batch", "prompt, ms", "after", "time ratio", "tokens/s", "after", "time ratio",
    )  # fmt: skip
    print(f"{options.prompt} tokens read, {options.tokens} decoded, {options.dtype}, ", end="")
    print(f"on {machine_name(torch.device(options.device))}")
    print(table(header, rows))


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks language-speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="model folder, or a GGUF file")
    parser.add_argument("--calibrate", type=Path, required=True, help="text to calibrate on")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.8])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--round-to", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to decode")
    parser.add_argument("--sequences", type=int, default=20, help="to calibrate on")
    parser.add_argument("--length", type=int, default=512, help="tokens of each")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(words)

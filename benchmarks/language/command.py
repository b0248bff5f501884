"""Perplexity of a smaller language model: `preserve` beside other training-free methods.

    python -m benchmarks language MODEL --calibrate valid.txt --judge test.txt

MODEL is a folder, or a GGUF file. All methods see the same tokens and are judged on the same
windows of another text. The baselines drop MLP neurons, equally many in every layer; each is also
built with our refit. Rows are added to the result file, and a row that is there is not measured
again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import interpress
from benchmarks.language.baselines import flap, layers, magnitude, nystroem, obs, wanda
from benchmarks.language.neurons import Choice, Neurons, measure_neurons
from benchmarks.language.text import load_model, perplexity, windows
from benchmarks.provenance import code_hash, machine_name
from benchmarks.tables import table
from interpress._version import __version__
from interpress.extend import Cut
from interpress.graph.example import Example
from interpress.refit.refit import refit
from interpress.surgery.weights import copy_with, shrunk_copy

RESULTS = Path(__file__).parents[1] / "results" / "language.json"
CHOICES: dict[str, Callable[[Neurons, int], Choice]] = {
    "magnitude": magnitude.choose,
    "Wanda": wanda.choose,
    "FLAP": flap.choose,
    "Nystroem": nystroem.choose,
    "OBS": obs.choose,
}
OURS = {
    "preserve": {},
    "preserve, constant": {"method": interpress.Method(allocation="constant")},
    "preserve, heads-last": {"method": interpress.Method(allocation="heads-last")},
    "preserve, heads-per-group": {"method": interpress.Method(allocation="heads-per-group")},
    "preserve, no refit": {"method": interpress.Method(refit=False)},
    "preserve, same widths": {"same_widths": True},
}
METHODS = (*OURS, *(f"{name}{end}" for name in CHOICES for end in ("", " + refit")), "drop layers")
_AT_ONCE = 2  # sequences per batch of the baselines' statistics


def main(words: list[str] | None = None) -> None:
    """Measure what is asked for, and print the table."""
    options = _parse(words)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    rows = [row for row in rows if row["version"] == __version__]
    run: _Run | None = None
    for budget in options.budgets:
        for method in options.methods:
            key = _key(options, method, budget)
            if any(all(row.get(k) == v for k, v in key.items()) for row in rows):
                continue
            run = run or _Run(options)
            print(f"{method} at {budget:g} of the FLOPs", flush=True)
            rows.append(key | run.measure(method, budget))
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(results_table(rows))


def _key(options: argparse.Namespace, method: str, budget: float) -> dict[str, Any]:
    return {
        "version": __version__, "model": options.model.stem, "method": method, "flops": budget,
        "calibrated_on": f"{options.sequences} x {options.length} tokens",
        "judged_on": f"{options.windows} x {options.window} tokens",
    }  # fmt: skip


def results_table(rows: list[dict[str, Any]]) -> str:
    """Return perplexities relative to the original's, one row per method."""
    budgets = sorted({row["flops"] for row in rows}, reverse=True)
    found = {(row["method"], row["flops"]): row["ratio"] for row in rows}
    methods = [method for method in METHODS if any((method, budget) in found for budget in budgets)]
    cells = [
        [m, *(f"{found[m, b]:.3f}" if (m, b) in found else "" for b in budgets)] for m in methods
    ]
    return table(["perplexity over the original's", *(f"{b:g} of FLOPs" for b in budgets)], cells)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the text of the `.md` file beside the result file."""
    first = rows[0]
    return (
        f"{first['model']}, calibrated on {first['calibrated_on']}, judged on "
        f"{first['judged_on']}; interpress {first['version']}, {first['machine']}.\n\n"
        f"{results_table(rows).strip()}\n"
    )


class _Run:
    """The model, the data, and what all methods share."""

    def __init__(self, options: argparse.Namespace) -> None:
        model, tokenizer = load_model(options.model)
        self.model = model.to(options.device)
        self.tokens = windows(tokenizer, options.calibrate, options.sequences, options.length)
        self.judged = windows(tokenizer, options.judge, options.windows, options.window)
        self.original = perplexity(self.model, self.judged)
        self._analysis: interpress.Analysis | None = None
        self._spaces: interpress.Spaces | None = None
        self._neurons: list[Neurons] | None = None
        self._influences: list[float] | None = None

    @property
    def analysis(self) -> interpress.Analysis:
        """What one pass of `preserve` measured."""
        if self._analysis is None:
            self._analysis = interpress.analyze(self.model, self.tokens)
        return self._analysis

    @property
    def spaces(self) -> interpress.Spaces:
        """The channel spaces; baselines without a refit need no analysis."""
        if self._spaces is None:
            known = self._analysis
            self._spaces = (
                known.spaces if known else interpress.find_spaces(self.model, self.batches[0])
            )
        return self._spaces

    @property
    def batches(self) -> list[Tensor]:
        """The calibration tokens on the device, a few sequences at a time."""
        device = next(self.model.parameters()).device
        return [batch.to(device) for batch in self.tokens.split(_AT_ONCE)]

    def measure(self, method: str, budget: float) -> dict[str, Any]:
        """Build one network and return its perplexity and cost."""
        start = time.perf_counter()
        if method in OURS:
            arguments: Any = OURS[method]
            result = self.analysis.compress(flops=budget, **arguments)
            network, left = result.model, result.flops
        elif method == "drop layers":
            network, left = self._drop_layers(budget)
        else:
            network, left = self._drop_neurons(method, budget)
        seconds = time.perf_counter() - start
        after = perplexity(network, self.judged)
        return {
            "left": left, "perplexity": [self.original, after], "ratio": after / self.original,
            "seconds": round(seconds, 1), "machine": machine_name(self.batches[0].device),
            "code": code_hash("language"),
        }  # fmt: skip

    def _drop_neurons(self, method: str, budget: float) -> tuple[nn.Module, float]:
        spaces = self.spaces
        if self._neurons is None:
            self._neurons = measure_neurons(spaces, self.batches)
        meter, sizes = spaces.cost.meter("flops"), {n.space: len(n.U) for n in self._neurons}
        widths, fraction = sizes, 1.0
        while meter.total(widths) > budget * meter.total({}):
            fraction -= 1e-3
            widths = {name: max(1, int(fraction * size)) for name, size in sizes.items()}
        name, _, is_refitted = method.partition(" + ")
        choices = {n.space: CHOICES[name](n, widths[n.space]) for n in self._neurons}
        kept = {space: choice.kept for space, choice in choices.items()}
        taps = {neurons.space: neurons.tap for neurons in self._neurons}
        T = {taps[space]: choice.T for space, choice in choices.items() if choice.T is not None}
        cut = Cut(spaces, kept, T)
        network = shrunk_copy(cut)
        if is_refitted:
            batches = [Example.of(batch).without_cache(self.model) for batch in self.batches]
            weights = self.analysis.study.row_weights()
            network = copy_with(network, refit(cut, network, batches, row_weights=weights).weights)
        else:
            for neurons in self._neurons:
                _add_bias(network, neurons.weight, choices[neurons.space].bias)
        return network, meter.total(widths) / meter.total({})

    def _drop_layers(self, budget: float) -> tuple[nn.Module, float]:
        if self._influences is None:
            self._influences = layers.influences(self.model, self.batches)
        example = self.batches[0][:1]
        whole, count = _flops(self.model, example), 0
        network = self.model
        while _flops(network, example) > budget * whole:
            count += 1
            network = layers.without_layers(self.model, self._influences, count)
        return network, _flops(network, example) / whole


def _add_bias(network: nn.Module, weight: str, bias: Tensor | None) -> None:
    """Add a bias to the layer of a weight; a refit would make it superfluous."""
    if bias is None:
        return
    layer: Any = network.get_submodule(weight.rpartition(".")[0])
    if layer.bias is not None:
        bias = bias + layer.bias.detach().to(bias)
    layer.bias = nn.Parameter(bias.to(layer.weight))


@torch.no_grad()
def _flops(model: nn.Module, example: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        model(example, use_cache=False)
    return counter.get_total_flops()


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks language",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="model folder, or a GGUF file")
    parser.add_argument("--calibrate", type=Path, required=True, help="text to calibrate on")
    parser.add_argument("--judge", type=Path, required=True, help="other text to judge on")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.9, 0.8, 0.7])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sequences", type=int, default=256, help="to calibrate on")
    parser.add_argument("--length", type=int, default=512, help="tokens of each")
    parser.add_argument("--windows", type=int, default=100, help="to judge on")
    parser.add_argument("--window", type=int, default=1024, help="tokens of each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="result file")
    return parser.parse_args(words)

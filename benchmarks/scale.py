"""Time and memory of large language models, from Llama shapes with random weights.

    python -m benchmarks scale 1.1B 6.7B --device cuda
    python -m benchmarks scale 6.7B --device cuda --model-on cpu --memory 10
    python -m benchmarks scale 70B --layers 2 4 --device cuda --model-on cpu
    python -m benchmarks scale --calculate

Every row is measured in a process of its own. With several numbers of layers, the whole shape is
calculated from them: time grows linearly with the number of layers, and so does the model, while
the memory beyond the model does not. Such rows are marked as calculated. Rows are added to the
result file, and a row that is there is not measured again. `--calculate` measures nothing: it
prints the memory that `preserve` needs, from the sizes of the shapes alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import interpress
from benchmarks.provenance import machine_name
from benchmarks.tables import table
from interpress._version import __version__

GIB = 2**30
STEPS = ("find", "preserve")
RESULTS = Path(__file__).parents[1] / "build" / "scale.json"
_SAMPLE_SECONDS = 0.05  # between two looks at the memory of this process


class Shape(NamedTuple):
    """A Llama shape."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int


SHAPES = {
    "tiny": Shape(64, 176, 4, 4, 2, 256),
    "135M": Shape(576, 1536, 30, 9, 3, 49152),
    "1.1B": Shape(2048, 5632, 22, 32, 4, 32000),
    "6.7B": Shape(4096, 11008, 32, 32, 32, 32000),
    "70B": Shape(8192, 28672, 80, 64, 8, 128256),
}


def main(words: list[str] | None = None) -> None:
    """Measure what is asked for, and print the table."""
    options = _parse(words)
    if options.calculate:
        print(needs_table())
        return
    if options.row is not None:
        print(json.dumps(_measure(json.loads(options.row))))
        return
    rows: list[dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else []
    known = {_key(row): row for row in rows if row["version"] == __version__}
    shown = []
    for name in options.shapes:
        for layers in options.layers or [SHAPES[name].layers]:
            for step in options.steps:
                asked = _asked(options, name, layers, step)
                if _key(asked) not in known:
                    print(f"measuring {step} of {name}, {layers} layers", file=sys.stderr)
                    row = known[_key(asked)] = _in_a_process(asked)
                    rows = [*rows, row]
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    options.out.write_text(json.dumps(rows, indent=1))
                shown.append(known[_key(asked)])
    print(_table(shown + _calculated(shown)))


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--layers", type=int, nargs="*", help="instead of those of the shape")
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=list(STEPS))
    parser.add_argument("--device", default="cpu", help="where to compute")
    parser.add_argument("--model-on", help="where the model lives, if not on --device")
    parser.add_argument("--memory", type=float, help="memory= of compress, in GiB")
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--flops", type=float, default=0.8)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--calculate", action="store_true", help="only calculate the memory")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    for name in options.shapes:
        if name not in SHAPES:
            parser.error(f"{name} is not a shape; choose from {', '.join(SHAPES)}")
    return options


def _asked(options: argparse.Namespace, name: str, layers: int, step: str) -> dict[str, Any]:
    return {
        "shape": name,
        "layers": layers,
        "step": step,
        "device": options.device,
        "model_on": options.model_on or options.device,
        "memory": options.memory,
        "sequences": options.sequences,
        "tokens": options.tokens,
        "flops": options.flops,
        "dtype": options.dtype,
        "version": __version__,
    }


def _key(row: dict[str, Any]) -> str:
    names = _ASKED_NAMES
    return json.dumps({name: row[name] for name in names})


_ASKED_NAMES = (
    "shape", "layers", "step", "device", "model_on", "memory", "sequences", "tokens", "flops",
    "dtype", "version",
)  # fmt: skip


def _in_a_process(asked: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks", "scale", "--row", json.dumps(asked)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return row


def _measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the seconds and the GiB beyond the model and its result."""
    model = build(asked["shape"], asked["layers"], asked["model_on"], asked["dtype"])
    vocabulary = SHAPES[asked["shape"]].vocabulary
    size = (asked["sequences"], asked["tokens"])
    texts = torch.randint(vocabulary, size, generator=torch.Generator().manual_seed(0))
    watch = _Memory(asked["device"])
    started = time.perf_counter()
    result_bytes = 0
    found: dict[str, Any] = {}
    if asked["step"] == "find":
        spaces = interpress.find_spaces(model, texts[:2].to(asked["model_on"]), progress=False)
        found = {"spaces": len(spaces.shrinkable)}
    else:
        result = interpress.compress(
            model, texts, flops=asked["flops"], memory=asked["memory"], device=asked["device"]
        )
        if asked["model_on"] == asked["device"]:
            result_bytes = _bytes(result.model)
        found = {"left": result.flops, "proof": result.network.proof.difference}
    seconds = time.perf_counter() - started
    beyond = (watch.peak() - result_bytes) / GIB
    return {
        **asked,
        **found,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
        "memory_gib": round(beyond, 2),
        "machine": machine_name(torch.device(asked["device"])),
    }


def build(name: str, layers: int, device: str, dtype: str) -> nn.Module:
    """Return a Llama of this shape with random weights."""
    import transformers

    shape = SHAPES[name]
    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, intermediate_size=shape.mlp, num_hidden_layers=layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.key_value_heads,
        vocab_size=shape.vocabulary, max_position_embeddings=4096, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            model: nn.Module = transformers.LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
    return model.eval()


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


class _Memory:
    """The largest memory of a device, or of this process, since it was made."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._start = self._highest = 0
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(device)
            self._start = torch.cuda.memory_allocated(device)
        else:
            self._start = self._highest = _resident()
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while True:
            self._highest = max(self._highest, _resident())
            time.sleep(_SAMPLE_SECONDS)

    def peak(self) -> int:
        """Return the bytes beyond what was held at the start."""
        if self._device.startswith("cuda"):
            return torch.cuda.max_memory_allocated(self._device) - self._start
        return self._highest - self._start


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def needs(shape: Shape, sequences: int, tokens: int, itemsize: int = 2) -> dict[str, float]:
    """Return the GiB that `preserve` needs beyond the model and its result, by what they hold.

    This is the arithmetic of `interpress.calibration.room` for a Llama whose widest space is the
    MLP and whose last block has the output layer.
    """
    layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.mlp
    output = shape.hidden * shape.vocabulary
    per_example = 2 * tokens * itemsize * max(3 * shape.mlp, shape.vocabulary + shape.hidden)
    at_once = max(1, 2 * GIB // per_example)
    fit = sequences - sequences // 5
    held = fit // 4
    stream = tokens * itemsize * shape.hidden
    sizes = {
        "model": itemsize * (shape.layers * layer + 2 * output),
        "weights": 2 * itemsize * (3 * shape.hidden * shape.mlp + output),
        "statistics": 8 * 8 * shape.mlp**2,
        "values": min(at_once, fit) * per_example,
        "between": stream * (fit + max(5 * held, 2 * fit + 3 * held)),
    }
    return {name: size / GIB for name, size in sizes.items()}


def needs_table(sequences: int = 128, tokens: int = 2048) -> str:
    """Return the table of calculated needs."""
    header = ["shape", "model", "weights of a block", "statistics", "values in a block", "between"]
    rows = []
    for name in ("1.1B", "6.7B", "70B"):
        found = needs(SHAPES[name], sequences, tokens)
        rows.append([name, *(f"{size:.1f} GiB" for size in found.values())])
    return table(header, rows)


def _calculated(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of whole shapes, from rows with fewer layers."""
    calculated = []
    for name in dict.fromkeys(row["shape"] for row in rows):
        for step in STEPS:
            found = [r for r in rows if (r["shape"], r["step"]) == (name, step)]
            found.sort(key=lambda row: row["layers"])
            whole = SHAPES[name].layers
            if len(found) > 1 and found[-1]["layers"] < whole:
                at = _line(found, "layers", whole)
                largest = max(row["memory_gib"] for row in found)
                row = {**found[-1], "layers": whole, "memory_gib": largest, "calculated": True}
                calculated.append(row | {k: round(at(k)) for k in ("seconds", "parameters")})
    return calculated


def _line(rows: Sequence[dict[str, Any]], along: str, where: int) -> Callable[[str], float]:
    """Return, per field, its value on the line through the first and the last row."""
    first, last = rows[0], rows[-1]
    share = (where - first[along]) / (last[along] - first[along])
    return lambda name: first[name] + share * (last[name] - first[name])


def _table(rows: Sequence[dict[str, Any]]) -> str:
    header = ["shape", "layers", "parameters", "step", "sequences", "seconds", "GiB beyond", ""]
    return table(
        header,
        [
            [
                row["shape"],
                str(row["layers"]),
                f"{row['parameters'] / 1e9:.2f} B",
                row["step"],
                "" if row["step"] == "find" else f"{row['sequences']} x {row['tokens']}",
                f"{row['seconds']:.0f}",
                f"{row['memory_gib']:.1f}",
                "calculated" if row.get("calculated") else "measured",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()

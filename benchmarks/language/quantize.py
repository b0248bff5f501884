"""Perplexity and size of language models in float, int8 and int4 (weights only, by torchao).

    python -m benchmarks language-quantize MODEL [MODEL ...] --judge test.txt

Each MODEL is a folder or a GGUF file, such as an original and what `result.save_pretrained` wrote.
Linear layers are quantised: int8 per row, int4 per group of 32 weights. Sizes count packed weights
and their scales; embeddings stay in 16 bits.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from benchmarks.language.text import load_model, perplexity, windows
from benchmarks.tables import table

_GROUP = 32  # weights of one int4 scale
_SCALE_BYTES = 2


def main(words: list[str] | None = None) -> None:
    """Measure every model in every format, and print the table."""
    options = _parse(words)
    rows = []
    for path in options.models:
        model, tokenizer = load_model(path)
        judged = windows(tokenizer, options.judge, options.windows, options.window)
        for bits in (16, 8, 4):
            network = quantized(model, bits).to(options.device)
            size = f"{megabytes(model, bits):,.0f}"
            rows.append((path.stem, _NAMES[bits], f"{perplexity(network, judged):.2f}", size))
            print(*rows[-1], flush=True)
    print(table(("model", "weights", "perplexity", "size, MB"), rows, text_columns=2))


_NAMES = {16: "bfloat16", 8: "int8", 4: "int4"}


def quantized(model: nn.Module, bits: int) -> nn.Module:
    """Return a copy with the weights of its linear layers in 16, 8 or 4 bits."""
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    network = copy.deepcopy(model)
    if bits == 16:
        return network.to(torch.bfloat16)
    if bits == 8:
        quantize_(network, Int8WeightOnlyConfig(), _is_quantized)
        return network
    int4 = getattr(torch, "int4")  # noqa: B009 - torch does not declare it
    config = IntxWeightOnlyConfig(weight_dtype=int4, granularity=PerGroup(_GROUP))
    quantize_(network, config, _is_quantized)
    return network


def _is_quantized(module: nn.Module, name: str) -> bool:
    """Return whether a layer is quantised: linear, in whole groups, and not the vocabulary."""
    is_linear = isinstance(module, nn.Linear) and module.in_features % _GROUP == 0
    return is_linear and not name.endswith("lm_head")


def megabytes(model: nn.Module, bits: int) -> float:
    """Return the size of the packed weights with their scales; shared weights count once."""
    packed = {
        module.weight: module
        for name, module in model.named_modules()
        if bits < 16 and isinstance(module, nn.Linear) and _is_quantized(module, name)
    }
    size = 0.0
    for parameter in model.parameters():
        if parameter in packed:
            groups = parameter.shape[0] if bits == 8 else parameter.numel() / _GROUP
            size += parameter.numel() * bits / 8 + groups * _SCALE_BYTES
        else:
            size += 2 * parameter.numel()
    return size / 1e6


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks language-quantize",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", type=Path, nargs="+", help="model folders or GGUF files")
    parser.add_argument("--judge", type=Path, required=True, help="text to judge on")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--window", type=int, default=1024, help="tokens of each")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(words)

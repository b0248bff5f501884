"""Models and texts for the benchmarks of language models, and perplexity."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def load_model(path: Path) -> tuple[nn.Module, Any]:
    """Return a model of a folder or of a GGUF file, in single precision, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, options = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    return model.eval(), AutoTokenizer.from_pretrained(folder, **options)


def windows(tokenizer: Any, path: Path, count: int, length: int) -> Tensor:
    """Return the first consecutive windows of a text (count, length)."""
    tokens = torch.tensor(tokenizer(path.read_text(encoding="utf-8"), verbose=False)["input_ids"])
    count = min(count, len(tokens) // length)
    return tokens[: count * length].reshape(count, length)


@torch.no_grad()
def perplexity(model: nn.Module, tokens: Tensor) -> float:
    """Return the perplexity over all windows."""
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for window in tokens.split(1):
        scores = model(window.to(device), use_cache=False).logits[0, :-1].float()
        following = window[0, 1:].to(device)
        total += float(nn.functional.cross_entropy(scores, following, reduction="sum"))
        count += len(following)
    return math.exp(total / count)

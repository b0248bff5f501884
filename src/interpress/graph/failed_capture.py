"""What is said, and what is not printed, if a model cannot be captured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch.export._trace
from torch import nn


@contextlib.contextmanager
def without_printed_graphs() -> Iterator[None]:
    """Keep torch.export from printing the thousands of lines of a graph that it cannot finish."""
    names = vars(torch.export._trace)
    names["print"] = lambda *_, **__: None
    try:
        yield
    finally:
        del names["print"]


def such_as(model: nn.Module) -> str:
    """Return the `part=` that holds most of the parameters, in words; nothing if none does."""
    total = sum(parameter.numel() for parameter in model.parameters())
    for name, child in model.named_children():
        if 2 * sum(parameter.numel() for parameter in child.parameters()) > total:
            return f", such as part={name!r}"
    return ""

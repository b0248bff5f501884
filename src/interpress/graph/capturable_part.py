"""What to say if a model cannot be captured: which part of it to capture instead.

A detector often ends with such code: it drops boxes by their scores (non-maximum suppression).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import torch.export._trace
from torch import nn


def capturable_part(model: nn.Module, problem: BaseException) -> str | None:
    """Return the path of the largest module that was not running when the capture failed.

    It is a child of a module that was running, which holds the code that failed. None if no such
    child has parameters.
    """
    names = {id(module): name for name, module in model.named_modules()}
    running = {""} | {names[id(m)] for m in _running(problem) if id(m) in names}
    sizes: dict[str, int] = {}
    for path in running:
        for name, module in _callable_children(model.get_submodule(path), path):
            if name not in running:
                sizes[name] = sum(parameter.numel() for parameter in module.parameters())
    largest = max(sizes, key=sizes.__getitem__, default=None)
    return largest if largest is not None and sizes[largest] else None


def _callable_children(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of a module with their paths; a list of modules stands for its items."""
    for child, submodule in module.named_children():
        name = f"{path}.{child}" if path else child
        if isinstance(submodule, nn.ModuleList | nn.ModuleDict):
            yield from _callable_children(submodule, name)
        else:
            yield name, submodule


def _running(problem: BaseException) -> Iterator[nn.Module]:
    """Yield the modules whose methods are in the traceback of an error or of its causes."""
    error: BaseException | None = problem
    while error is not None:
        entry: TracebackType | None = error.__traceback__
        while entry is not None:
            owner = entry.tb_frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                yield owner
            entry = entry.tb_next
        error = error.__cause__ or error.__context__


def advice(model: nn.Module, problem: BaseException) -> str:
    """Return what to do about code that depends on tensor values, as the end of a message."""
    usual = (
        "The usual cause is a Python branch or loop that depends on tensor values, such as "
        "dropping boxes by their scores; rewrite it with torch.where or in terms of shapes"
    )
    part = capturable_part(model, problem)
    if part is None:
        return f"{usual}, or compress a submodule without it"
    return f"{usual}, or compress only the largest part without it: part={part!r}"


@contextlib.contextmanager
def without_printed_graphs() -> Iterator[None]:
    """Keep torch.export from printing the thousands of lines of a graph that it cannot finish."""
    names = vars(torch.export._trace)
    names["print"] = lambda *_, **__: None
    try:
        yield
    finally:
        del names["print"]

"""What to say if a model cannot be captured: which part of it to capture instead.

A detector often ends with such code: it drops boxes by their scores (non-maximum suppression).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch.export._trace
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

CanCapture = Callable[[nn.Module, Example], bool]
_MOST_ATTEMPTS = 8  # modules that are captured to see whether it works; each may take seconds


def capturable_part(
    model: nn.Module, example: Example, problem: BaseException, can_capture: CanCapture
) -> str | None:
    """Return the path of the module with the most FLOPs that can be captured and is called once.

    Its inputs must hold one row per example, which those behind a choice of boxes do not. Modules
    that were running when the capture of the whole failed cannot be captured. The children of these
    and of others that do not fit are tried. None if nothing is found.
    """
    names = {id(module): name for name, module in model.named_modules()}
    running = {""} | {names[id(m)] for m in _running(problem) if id(m) in names}
    try:
        work = _flops_of_modules(model, example)
    except Exception:  # the model's code may raise anything
        return None
    waiting, attempts = [""], 0
    while waiting and attempts < _MOST_ATTEMPTS:
        path = max(waiting, key=lambda name: work.get(name, 0))
        waiting.remove(path)
        module = model.get_submodule(path)
        if path not in running:
            inputs = _inputs_of(module, model, example)
            if _examples(inputs) == _examples(example):
                attempts += 1
                if can_capture(module, inputs):
                    return path
        waiting += [name for name, _ in _callable_children(module, path) if work.get(name)]
    return None


def _flops_of_modules(model: nn.Module, example: Example) -> dict[str, int]:
    """Return the FLOPs of every module that is called once when the model runs."""
    calls: dict[str, list[int]] = {}
    counter = FlopCounterMode(display=False)
    handles = []

    def count(name: str, sign: int) -> Callable[..., None]:
        return lambda *_: calls.setdefault(name, []).append(sign * counter.get_total_flops())

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(count(name, -1)))
        handles.append(module.register_forward_hook(count(name, 1)))
    try:
        with evaluation(model), torch.no_grad(), counter:
            example.call(model)
    finally:
        for handle in handles:
            handle.remove()
    return {name: sum(counts) for name, counts in calls.items() if len(counts) == 2}


def _inputs_of(module: nn.Module, model: nn.Module, example: Example) -> Example:
    """Return the inputs with which the model calls one of its modules."""
    recorded: list[Example] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorded.append(Example(args, kwargs, device=example.device))

    handle = module.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with evaluation(model), torch.no_grad():
            example.call(model)
    finally:
        handle.remove()
    return recorded[0]


def _examples(inputs: Example) -> int | None:
    """Return how many examples a call gets: the length of its first tensor or list of tensors."""
    first = next(iter([*inputs.args, *inputs.kwargs.values()]), None)
    if isinstance(first, list):
        maps = all(isinstance(entry, Tensor) and entry.ndim > 3 for entry in first)
        return _examples(Example(tuple(first))) if maps else len(first)
    tensors = inputs.tensors()
    return len(tensors[0]) if tensors and tensors[0].ndim else None


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


def advice(
    model: nn.Module, example: Example, problem: BaseException, can_capture: CanCapture
) -> str:
    """Return what to do about code that depends on tensor values, as the end of a message."""
    usual = (
        "The usual cause is a Python branch or loop that depends on tensor values, such as "
        "dropping boxes by their scores; rewrite it with torch.where or in terms of shapes"
    )
    part = capturable_part(model, example, problem, can_capture)
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

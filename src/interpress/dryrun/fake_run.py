"""Run a smaller copy of a model on tensors that have shapes but no values."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from interpress.dryrun.inputs import trial_kept
from interpress.graph.model_state import evaluation
from interpress.spaces.spaces import Spaces
from interpress.surgery.attributes import Choices, update_attributes
from interpress.surgery.cut import Cut
from interpress.surgery.weights import copy_with


@dataclass
class Failure:
    """Where and why a smaller copy of the model did not run."""

    modules: list[str]
    """Names of the modules that were running, innermost first."""
    message: str
    progress: int
    """Number of calls into torch before the failure."""


def run_smaller(spaces: Spaces, names: list[str], choices: Choices) -> Failure | None:
    """Run the model with the named spaces smaller, and return the failure if there is one."""
    program = spaces.program
    cut = Cut(spaces, trial_kept(spaces, names))
    named = dict(program.model.named_parameters()) | dict(program.model.named_buffers())
    shapes = {name: tuple(tensor.shape) for name, tensor in named.items()} | _shrunk_shapes(cut)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = {
            name: torch.empty(shapes[name], dtype=t.dtype, device=t.device)
            for name, t in named.items()
        }
    smaller = copy_with(program.model, fakes)
    update_attributes(cut, smaller, choices)
    inputs = program.example.map(mode.from_tensor)
    counter = _CallCounter()
    try:
        with (
            _without_fake_tensor_log(),
            torch.random.fork_rng(),
            mode,
            evaluation(smaller),
            torch.no_grad(),
            counter,
        ):
            inputs.call(smaller)
    except Exception as problem:  # the model's code may raise anything
        return _failure(problem, smaller, counter.count)
    return None


class _CallCounter(TorchFunctionMode):
    """Counts calls into torch, to tell which of two failures came later."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _without_fake_tensor_log() -> Iterator[None]:
    """Suppress torch's log of failing operators, because failures are expected here."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _shrunk_shapes(cut: Cut) -> dict[str, tuple[int, ...]]:
    """Return the shapes that weights will have, without computing the weights."""
    shapes = {}
    for name, value in cut.spaces.trace.weights.items():
        shape = list(value.shape)
        for labelling in value.channels():
            stays = cut.stays(labelling.labels)
            dim = labelling.support[-1]
            lines = stays.movedim(dim, -1).reshape(-1, stays.shape[dim])
            shape[dim] = int(lines[0].sum())
        shapes[name] = tuple(shape)
    return shapes


def _failure(problem: BaseException, model: nn.Module, progress: int) -> Failure:
    """Return a failure with the modules whose methods are in the traceback."""
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []
    entry: TracebackType | None = problem.__traceback__
    while entry is not None:
        owner = entry.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            running.append(names[id(owner)])
        entry = entry.tb_next
    return Failure(list(dict.fromkeys(reversed(running))) or [""], first_line(problem), progress)


def first_line(problem: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:160]

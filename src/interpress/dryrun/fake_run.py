"""Run a smaller copy of a model on tensors that have shapes but no values."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from interpress.dryrun.inputs import trial_kept
from interpress.graph.misfit import first_line
from interpress.graph.model_state import evaluation
from interpress.spaces.spaces import Spaces
from interpress.surgery.attributes import (
    KNOWN_TYPES,
    Choices,
    update_known_sizes,
    write_sizes,
)
from interpress.surgery.cut import Cut, shrunk_shapes
from interpress.surgery.graph_sizes import update_graph_sizes
from interpress.surgery.size_attributes import (
    Candidates,
    Sizes,
    find_candidates,
    observe_sizes,
)
from interpress.surgery.weights import copy_with


@dataclass
class Failure:
    """Where and why a smaller copy of the model did not run."""

    modules: list[str]
    """Names of the modules that were running, innermost first."""
    message: str
    progress: int
    """Number of calls into torch before the failure."""


@dataclass(frozen=True)
class TrialSlots:
    """What is kept in a trial, and the sizes that modules may store."""

    kept: dict[str, Tensor]
    sizes: Sizes
    candidates: list[Candidates]

    @classmethod
    def of(cls, spaces: Spaces, names: Sequence[str]) -> TrialSlots:
        """Return those of a trial in which the named spaces are smaller."""
        kept = trial_kept(spaces, list(names))
        sizes = observe_sizes(spaces, {name: len(index) for name, index in kept.items()})
        return cls(kept, sizes, find_candidates(spaces, sizes, KNOWN_TYPES))


class FakeTrial:
    """A copy of a model with some spaces smaller, whose tensors have no values.

    It is made once and run with any number of choices for the sizes that modules store.
    """

    def __init__(self, spaces: Spaces, slots: TrialSlots) -> None:
        program, cut = spaces.program, Cut(spaces, slots.kept)
        self.sizes, self.candidates = slots.sizes, slots.candidates
        named = dict(program.model.named_parameters()) | dict(program.model.named_buffers())
        shapes = {name: tuple(t.shape) for name, t in named.items()} | shrunk_shapes(cut)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        with self._mode:
            fakes = {
                name: torch.empty(shapes[name], dtype=t.dtype, device=t.device)
                for name, t in named.items()
            }
        self._model = copy_with(program.model, fakes)
        update_known_sizes(self._model)
        update_graph_sizes(cut, self._model)
        self._inputs = program.example.map(self._mode.from_tensor)

    def run(self, choices: Choices) -> Failure | None:
        """Run the copy, and return the failure if there is one.

        A slot without a choice follows its likeliest source.
        """
        counter = _CallCounter()
        try:
            with (
                _without_fake_tensor_log(),
                torch.random.fork_rng(),
                self._mode,
                evaluation(self._model),  # puts the old sizes back
                torch.no_grad(),
                counter,
            ):
                write_sizes(self._model, self.sizes, self.candidates, choices)
                self._inputs.call(self._model)
        except Exception as problem:  # the model's code may raise anything
            return _failure(problem, self._model, counter.count)
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

"""The part of a trial that needs no values: does the model's code run with fewer channels?"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from interpress.dryrun.inputs import trial_kept, weights_of
from interpress.graph.model_state import evaluation
from interpress.spaces.spaces import Spaces
from interpress.surgery.attributes import KNOWN_TYPES, Choices, update_attributes
from interpress.surgery.cut import Cut
from interpress.surgery.size_attributes import (
    Options,
    Sizes,
    conflicts,
    names_a_size,
    observe,
    options,
    shared,
)
from interpress.surgery.weights import copy_with

_MOST_PAIRS = 20


@dataclass
class Failure:
    """Where and why a smaller copy did not run."""

    modules: list[str]
    """Names of the modules that were running, innermost first."""
    message: str
    progress: int
    """How many calls into torch it got."""


@dataclass
class Shapes:
    """Shrinks everything on tensors that have shapes and no values, and settles what fails."""

    spaces: Spaces

    def settle(self) -> Spaces:
        """The spaces whose surgery runs, with the choices that makes it so."""
        if not self.spaces.shrinkable or self._run([], {}) is not None:
            return self.spaces  # code that does not run without values is left to those
        while names := [space.name for space in self.spaces.shrinkable]:
            failure, choices = self._choose(names, thorough=False)
            if failure is not None and self._tie(failure, names):
                continue
            if failure is not None:
                failure, choices = self._choose(names)
            if failure is None:
                self.spaces = replace(self.spaces, choices=self._modest(names, choices))
                failure = self._fails_alone(names)
            if failure is None:
                return self.spaces
            if not self._tie(failure, names):
                self._freeze(failure, names)
        return self.spaces

    def _fails_alone(self, names: list[str]) -> Failure | None:
        """The first failure of a space by itself, of those that share a number with others."""
        choices = dict(self.spaces.choices)
        failures = (self._run([name], choices) for name in self.entangled(names))
        return next((failure for failure in failures if failure is not None), None)

    def alternatives(self, names: list[str]) -> Iterator[Choices]:
        """Other sources for numbers that several changing sizes fit, if they run as well.

        A module with as many heads as dims per head runs either way; only values can tell.
        """
        found, _ = self._options(names)
        settled = dict(self.spaces.choices)
        unused = dict.fromkeys((one.slot for one in found), None)
        if self._run(names, settled | unused) is None:
            yield settled | unused
        others = [
            (one.slot, source)
            for one in found
            for source in one.sources
            if source != settled.get(one.slot)
        ]
        for count in (1, 2):
            for picks in itertools.islice(itertools.combinations(others, count), _MOST_PAIRS):
                choices = settled | dict(picks)
                if len(dict(picks)) == count and self._run(names, choices) is None:
                    yield choices

    def entangled(self, names: list[str]) -> list[str]:
        """Spaces that share a number of some module with others, and might not know it."""
        found, sizes = self._options(names)
        chosen = dict(self.spaces.choices)
        groups = [
            group
            for one in found
            if chosen.get(one.slot, one.sources[0]) is not None
            for group in shared(self.spaces, one, sizes)
        ]
        members = {index for group in groups for index in group}
        return [name for name in names if self.spaces.index(self.spaces[name]) in members]

    def _modest(self, names: list[str], choices: Choices) -> Choices:
        """Leave numbers alone that the code does not use, unless their name says a size."""
        found, _ = self._options(names)
        for one in found:
            if choices[one.slot] is not None and (one.doubtful or not names_a_size(one.slot)):
                fewer = choices | {one.slot: None}
                if self._run(names, fewer) is None:
                    choices = fewer
        return choices

    def _options(self, names: list[str]) -> tuple[list[Options], Sizes]:
        kept = trial_kept(self.spaces, names)
        widths = {name: len(index) for name, index in kept.items()}
        sizes = observe(self.spaces, widths)
        return options(self.spaces, sizes, KNOWN_TYPES), sizes

    def _choose(self, names: list[str], *, thorough: bool = True) -> tuple[Failure | None, Choices]:
        """Let attributes follow other sources until it runs, or gets no further."""
        found, _ = self._options(names)
        choices: Choices = {one.slot: one.sources[0] for one in found}
        failure = self._run(names, choices)
        while failure is not None:
            better = None
            for change in self._changes(failure, found, choices, thorough):
                other = self._run(names, choices | change)
                if other is None or other.progress > failure.progress:
                    better = (other, choices | change)
                    break
            if better is None:
                return failure, choices
            failure, choices = better
        return None, choices

    def _changes(
        self, failure: Failure, found: list[Options], choices: Choices, thorough: bool
    ) -> Iterator[Choices]:
        """Other sources for one slot of the classes that were running, or for two at once."""
        modules = dict(self.spaces.program.model.named_modules())
        kinds = list(dict.fromkeys(type(modules[name]) for name in failure.modules))
        for kind in kinds:
            others = [
                (one.slot, source)
                for one in found
                if one.slot.kind is kind
                for source in one.sources
                if source != choices[one.slot]
            ]
            yield from ({slot: source} for slot, source in others)
            pairs = itertools.combinations(others if thorough else [], 2)
            both = (dict(pair) for pair in pairs if pair[0][0] != pair[1][0])
            yield from itertools.islice(both, _MOST_PAIRS)

    def _run(self, names: list[str], choices: Choices) -> Failure | None:
        """Run a smaller copy on tensors that have shapes and no values."""
        program = self.spaces.program
        cut = Cut(self.spaces, trial_kept(self.spaces, names))
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
        steps = _Steps()
        try:
            with (
                _silent(),
                torch.random.fork_rng(),
                mode,
                evaluation(smaller),
                torch.no_grad(),
                steps,
            ):
                inputs.call(smaller)
        except Exception as problem:  # whatever the model's own code raises
            return _failure(problem, smaller, steps.count)
        return None

    def _tie(self, failure: Failure, names: list[str]) -> bool:
        """Make one space of those that a running module keeps one number for."""
        modules = dict(self.spaces.program.model.named_modules())
        kinds = {type(modules[name]) for name in failure.modules}
        found, sizes = self._options(names)
        for one in (one for one in found if one.slot.kind in kinds):
            trial = Shapes(self.spaces)
            for group in conflicts(one, sizes):
                members = [self.spaces.all[index] for index in group]
                channels = [space.name for space in members if not space.heads]
                if len(channels) > 1:
                    trial.spaces = trial.spaces.tied(channels)
            if trial.spaces is self.spaces:
                continue
            rest = [space.name for space in trial.spaces.shrinkable]
            later, _ = trial._choose(rest, thorough=False)
            if later is None or later.progress > failure.progress:
                self.spaces = trial.spaces
                return True
        return False

    def _freeze(self, failure: Failure, names: list[str]) -> None:
        """Freeze the spaces that fail by themselves near where it failed, or all of those near."""
        near = self._near(failure, names)
        reasons = {}
        for name in near:
            alone, _ = self._choose([name])
            if alone is not None:
                where = alone.modules[0] or "the model"
                reasons[name] = f"the code of {where} fails with fewer ({alone.message})"
        if not reasons:
            heads = [name for name in near if self.spaces[name].heads]
            reasons = dict.fromkeys(
                heads or near, f"fails together with others ({failure.message})"
            )
        modules = dict(self.spaces.program.model.named_modules())
        for name in list(reasons):
            for twin in _twins(name, failure.modules, modules, names):
                reasons.setdefault(twin, reasons[name])
        self.spaces = self.spaces.freeze(reasons)

    def _near(self, failure: Failure, names: list[str]) -> list[str]:
        """The spaces with a weight in the innermost module that has any."""
        for module in failure.modules:
            prefix = f"{module}." if module else ""
            near = [
                name
                for name in names
                if any(weight.startswith(prefix) for weight in weights_of(self.spaces[name]))
            ]
            if near:
                return near
        return names


class _Steps(TorchFunctionMode):
    """Counts calls into torch, to tell which of two failures came later."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without torch's own log of operators that fail: here they are expected to."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _shrunk_shapes(cut: Cut) -> dict[str, tuple[int, ...]]:
    """The shapes that weights will have, without computing them."""
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
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []
    frame: TracebackType | None = problem.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            running.append(names[id(owner)])
        frame = frame.tb_next
    return Failure(list(dict.fromkeys(reversed(running))) or [""], first_line(problem), progress)


def first_line(problem: BaseException) -> str:
    """The kind of a problem and the first line of what it says."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:160]


def _twins(
    name: str, running: list[str], modules: dict[str, nn.Module], names: list[str]
) -> list[str]:
    """Spaces of the same name below other modules of the class that failed."""
    for module in running:
        if module and name.startswith(f"{module}."):
            suffix = name[len(module) :]
            kind = type(modules[module])
            twins = [f"{other}{suffix}" for other, m in modules.items() if type(m) is kind]
            return [twin for twin in twins if twin in names and twin != name]
    return []

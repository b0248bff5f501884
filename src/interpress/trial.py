"""Trying a surgery before it is offered: does the model's own code run with fewer channels?

The graph tells which channels could leave. Whether the Python code of a module can follow is found
out by shrinking every space at once: first on tensors without values, which is cheap and settles
which attributes have to change, then once with values, by the projection identity. What fails is
traced to its module and frozen with the reason; the rest goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from interpress.attributes import KNOWN_TYPES, Choices, refresh
from interpress.errors import DataError
from interpress.graph.capture import evaluation
from interpress.graph.spaces import ChannelSpace, Spaces
from interpress.sizes import Options, Sizes, conflicts, names_a_size, observe, options, shared
from interpress.surgery import Cut, carve, copied
from interpress.verify import Proof, prove

_MOST_PAIRS = 20


def trial_kept(spaces: Spaces, names: list[str]) -> dict[str, Tensor]:
    """Some of every cell, never all of it; spaces that share a weight keep different numbers."""
    kept: dict[str, Tensor] = {}
    taken: dict[str, set[int]] = {}
    for index, name in enumerate(names):
        space = spaces[name]
        shares = space.size // space.step
        used = set().union(*(taken.get(weight, set()) for weight in _weights(space)))
        wishes = [1 + (2 * shares // 3 + index + i) % (shares - 1) for i in range(shares - 1)]
        share = next((wish for wish in wishes if wish not in used), wishes[0])
        for weight in _weights(space):
            taken.setdefault(weight, set()).add(share)
        kept[name] = _last_of_every_cell(space, share, shares)
    return kept


def _last_of_every_cell(space: ChannelSpace, share: int, shares: int) -> Tensor:
    kept = []
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1)
        kept.append(members[-(len(members) * share // shares) :])
    return torch.cat(kept).sort().values


def random_T(cut: Cut, seed: int = 0) -> dict[str, Tensor]:
    """Any interpolation proves a surgery: cheap random ones, zero between groups.

    `T` keeps what is kept and adds a random matrix of rank one, in which all entries differ.
    """
    generator = torch.Generator().manual_seed(seed)
    matrices = {}
    for name, tap in cut.spaces.taps.items():
        kept = cut.columns(tap)
        if len(kept) == tap.size:
            continue
        row = torch.randn(len(kept), 1, generator=generator, dtype=torch.float64)
        column = torch.randn(1, tap.size, generator=generator, dtype=torch.float64)
        T = row * column / max(1.0, len(kept) ** 0.5)
        T[torch.arange(len(kept)), kept] += 1
        T[tap.groups[kept][:, None] != tap.groups[None, :]] = 0
        matrices[name] = T
    return matrices


def settle(spaces: Spaces) -> Spaces:
    """The spaces with those frozen that the model's code cannot shrink, and the choices made."""
    spaces = _Shapes(spaces).settle()
    return _Values(spaces).settle()


@dataclass
class _Failure:
    modules: list[str]
    """Names of the modules that were running, innermost first."""
    message: str
    progress: int
    """How many calls into torch it got."""


@dataclass
class _Shapes:
    """The part of the trial that needs no values."""

    spaces: Spaces

    def settle(self) -> Spaces:
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

    def _fails_alone(self, names: list[str]) -> _Failure | None:
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

    def _choose(
        self, names: list[str], *, thorough: bool = True
    ) -> tuple[_Failure | None, Choices]:
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
        self, failure: _Failure, found: list[Options], choices: Choices, thorough: bool
    ) -> Iterator[Choices]:
        """Other sources for one slot of the classes that were running, or for two at once."""
        modules = dict(self.spaces.graph.model.named_modules())
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

    def _run(self, names: list[str], choices: Choices) -> _Failure | None:
        """Run a smaller copy on tensors that have shapes and no values."""
        graph = self.spaces.graph
        cut = Cut(self.spaces, trial_kept(self.spaces, names))
        named = dict(graph.model.named_parameters()) | dict(graph.model.named_buffers())
        shapes = {name: tuple(tensor.shape) for name, tensor in named.items()} | _shrunk_shapes(cut)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            fakes = {
                name: torch.empty(shapes[name], dtype=t.dtype, device=t.device)
                for name, t in named.items()
            }
        smaller = copied(graph.model, fakes)
        refresh(self.spaces, cut, smaller, choices)
        inputs = graph.example.map(mode.from_tensor)
        steps = _Steps()
        try:
            with _silent(), mode, evaluation(smaller), torch.no_grad(), steps:
                inputs.call(smaller)
        except Exception as problem:  # whatever the model's own code raises
            return _failure(problem, smaller, steps.count)
        return None

    def _tie(self, failure: _Failure, names: list[str]) -> bool:
        """Make one space of those that a running module keeps one number for."""
        modules = dict(self.spaces.graph.model.named_modules())
        kinds = {type(modules[name]) for name in failure.modules}
        found, sizes = self._options(names)
        for one in (one for one in found if one.slot.kind in kinds):
            trial = _Shapes(self.spaces)
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

    def _freeze(self, failure: _Failure, names: list[str]) -> None:
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
        modules = dict(self.spaces.graph.model.named_modules())
        for name in list(reasons):
            for twin in _twins(name, failure.modules, modules, names):
                reasons.setdefault(twin, reasons[name])
        self.spaces = self.spaces.freeze(reasons)

    def _near(self, failure: _Failure, names: list[str]) -> list[str]:
        """The spaces with a weight in the innermost module that has any."""
        for module in failure.modules:
            prefix = f"{module}." if module else ""
            near = [
                name
                for name in names
                if any(weight.startswith(prefix) for weight in _weights(self.spaces[name]))
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


def perturbed(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy with noise on all parameters, so that none is zero or special.

    The projection identity holds for any weights; layers that start at zero would hide mistakes.
    """
    copy = copied(model, {})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in copy.parameters():
            if parameter.is_floating_point():
                typical = float(parameter.double().square().mean().sqrt())
                noise = torch.randn(parameter.shape, generator=generator)
                size = 0.1 * typical if typical > 1e-3 else 0.05
                parameter.add_((size * noise).to(parameter))
    return copy


class _Values:
    """The part of the trial that needs values: the projection identity."""

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces

    def settle(self) -> Spaces:
        """The spaces that hold, tried on a copy with perturbed weights."""
        graph = self.spaces.graph
        if not self.spaces.trace.finite:
            raise DataError(
                "the model's output on the example holds NaN, so that nothing can be proved about "
                "it; check its weights, or pass another example"
            )
        if self.spaces.shrinkable:
            self.spaces = replace(self.spaces, graph=replace(graph, model=perturbed(graph.model)))
        return replace(self._settled(), graph=graph)

    def _settled(self) -> Spaces:
        names = [space.name for space in self.spaces.shrinkable]
        if not names or (self._holds(names) and self._alone_too(names)):
            return self.spaces
        if self._rescale(names) or self._rechoose(names):
            return self.spaces
        while names and not (self._holds(names) and self._alone_too(names)):
            self.spaces = self.spaces.freeze(self._culprits(names))
            names = [space.name for space in self.spaces.shrinkable]
        return self.spaces

    def _alone_too(self, names: list[str]) -> bool:
        """Spaces that one number of a module may follow must also be right by themselves."""
        return all(self._holds([name]) for name in _Shapes(self.spaces).entangled(names))

    def _rescale(self, names: list[str]) -> bool:
        """The code may divide by the square root of the width it finds: try so, tap by tap."""
        plain = self.spaces
        taps = [t for t in plain.taps.values() if t.of_activations and not t.gain]
        self.spaces = replace(plain, rescaled=frozenset(tap.name for tap in taps))
        if not taps or not self._holds(names):
            rescaled = set()
            for tap in taps:
                own = [s.name for s in plain.shrinkable if tap.name in s.taps and not s.heads]
                self.spaces = plain
                if own and not self._holds(own):
                    rescaled.add(tap.name)
            self.spaces = replace(plain, rescaled=frozenset(rescaled))
            if not rescaled or not self._holds(names):
                self.spaces = plain
                return False
        return True

    def _rechoose(self, names: list[str]) -> bool:
        """Other sources for the numbers that modules keep."""
        plain = self.spaces
        for choices in _Shapes(plain).alternatives(names):
            self.spaces = replace(plain, choices=choices)
            if self._holds(names) and self._alone_too(names):
                return True
        self.spaces = plain
        return False

    def _prove(self, names: list[str]) -> Proof | str:
        kept = trial_kept(self.spaces, names)
        T = random_T(Cut(self.spaces, kept))
        cut = Cut(self.spaces, kept, T)
        try:
            return prove(self.spaces, cut, carve(cut))
        except Exception as problem:  # whatever the model's own code raises
            return _first_line(problem)

    def _holds(self, names: list[str]) -> bool:
        return bool(proof := self._prove(names)) and isinstance(proof, Proof)

    def _culprits(self, names: list[str]) -> dict[str, str]:
        """Spaces that fail alone; if none does, the one without which those before it hold."""
        entangled = _Shapes(self.spaces).entangled(names)
        alone = self._search(names) | {
            name: "it cannot shrink by itself" for name in entangled if not self._holds([name])
        }
        if alone:
            return alone
        low, high = 1, len(names)
        while low < high:  # the shortest beginning that fails ends with a culprit
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._holds(names[:middle]) else (low, middle)
        return {names[high - 1]: "its surgery cannot be proved together with others'"}

    def _search(self, names: list[str]) -> dict[str, str]:
        """The spaces that fail by themselves, found by halving."""
        proof = self._prove(names)
        if isinstance(proof, Proof) and proof:
            return {}
        if len(names) == 1:
            seen = proof if isinstance(proof, str) else f"difference {proof.difference:.0e}"
            return {names[0]: f"its surgery cannot be proved ({seen})"}
        half = len(names) // 2
        return self._search(names[:half]) | self._search(names[half:])


def _shrunk_shapes(cut: Cut) -> dict[str, tuple[int, ...]]:
    """The shapes that weights will have, without computing them."""
    shapes = {}
    for name, value in cut.spaces.trace.weights.items():
        shape = list(value.shape)
        for layer in value.channels():
            stays = cut.stays(layer.labels)
            dim = layer.support[-1]
            lines = stays.movedim(dim, -1).reshape(-1, stays.shape[dim])
            shape[dim] = int(lines[0].sum())
        shapes[name] = tuple(shape)
    return shapes


def _failure(problem: BaseException, model: nn.Module, progress: int) -> _Failure:
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []
    frame: TracebackType | None = problem.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            running.append(names[id(owner)])
        frame = frame.tb_next
    return _Failure(list(dict.fromkeys(reversed(running))) or [""], _first_line(problem), progress)


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:160]


def _weights(space: ChannelSpace) -> tuple[str, ...]:
    return (*space.producers, *space.carriers, *space.consumers)


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

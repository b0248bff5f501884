"""Trying a surgery before it is offered: does the model's own code run with fewer channels?

The graph tells which channels could leave. Whether the Python code of a module can follow is found
out by shrinking every space at once: first on tensors without values, which is cheap and settles
which attributes have to change, then once with values, by the projection identity. What fails is
traced to its module and frozen with the reason; the rest goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import TracebackType

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from interpress.attributes import Choices, candidates, combinations, refresh
from interpress.graph.capture import evaluation
from interpress.graph.spaces import ChannelSpace, Spaces
from interpress.surgery import Cut, copied, shrink
from interpress.verify import Proof, prove

_MOST_COMBINATIONS = 24


def trial_kept(space: ChannelSpace) -> Tensor:
    """About three fifths of every cell, never all of it."""
    cells, counts = space.cells.unique(return_counts=True)
    share = max(1, (3 * (space.size // space.step)) // 5)
    kept = []
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        members = torch.nonzero(space.cells == cell).reshape(-1)
        kept.append(members[-(count * share * space.step // space.size) :])
    return torch.cat(kept)


def random_T(cut: Cut, seed: int = 0) -> dict[str, Tensor]:
    """Any interpolation proves a surgery: random ones, zero between groups."""
    generator = torch.Generator().manual_seed(seed)
    matrices = {}
    for name, tap in cut.spaces.taps.items():
        kept = cut.columns(tap)
        if len(kept) == tap.size:
            continue
        T = torch.randn(len(kept), tap.size, generator=generator, dtype=torch.float64)
        T[tap.groups[kept][:, None] != tap.groups[None, :]] = 0
        matrices[name] = T / max(1.0, len(kept) ** 0.5)
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


@dataclass
class _Shapes:
    """The part of the trial that needs no values."""

    spaces: Spaces
    choices: Choices = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)

    def settle(self) -> Spaces:
        if not self.spaces.shrinkable:
            return self._done()
        if self._run([], {}) is not None:  # the code does not run without values: leave it to those
            return self._done()
        while names := [space.name for space in self.spaces.shrinkable]:
            failure = self._run(names, self.choices)
            if failure is None:
                break
            if not self._next_choice(failure, names):
                self._freeze(failure, names)
                self.tried.clear()
        return self._done()

    def _done(self) -> Spaces:
        return replace(self.spaces, hints={**self.spaces.hints, "choices": dict(self.choices)})

    def _run(self, names: list[str], choices: Choices) -> _Failure | None:
        """Run a smaller copy on tensors that have shapes and no values."""
        graph = self.spaces.graph
        cut = Cut(self.spaces, {name: trial_kept(self.spaces[name]) for name in names})
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
        try:
            with mode, evaluation(smaller), torch.no_grad():
                graph.example.map(mode.from_tensor).call(smaller)
        except Exception as problem:  # whatever the model's own code raises
            return _failure(problem, smaller)
        return None

    def _next_choice(self, failure: _Failure, names: list[str]) -> bool:
        """Move on to another combination of attributes, of the innermost module that has one."""
        widths = {name: len(trial_kept(self.spaces[name])) for name in names}
        found = candidates(self.spaces, widths)
        modules = dict(self.spaces.graph.model.named_modules())
        for name in failure.modules:
            if name not in found:
                continue
            kind = type(modules[name]).__qualname__
            count = min(combinations(found[name]), _MOST_COMBINATIONS)
            if self.tried.get(kind, 0) + 1 < count:
                self.tried[kind] = self.tried.get(kind, 0) + 1
                self.choices[kind] = self.tried[kind]
                return True
            self.choices.pop(kind, None)
        return False

    def _freeze(self, failure: _Failure, names: list[str]) -> None:
        """Freeze the spaces that fail by themselves near where it failed, or all of those near."""
        near = self._near(failure, names)
        reasons = {}
        for name in near:
            alone = self._alone(name)
            if alone is not None:
                reasons[name] = f"{alone.modules[0] or 'the model'} cannot run with fewer: {alone.message}"
        if not reasons:
            heads = [name for name in near if self.spaces[name].heads]
            reasons = dict.fromkeys(heads or near, f"cannot shrink with others: {failure.message}")
        modules = dict(self.spaces.graph.model.named_modules())
        for name in list(reasons):
            for twin in _twins(name, failure.modules, modules, names):
                reasons.setdefault(twin, reasons[name])
        self.spaces = self.spaces.freeze(reasons)

    def _alone(self, name: str) -> _Failure | None:
        """Whether a space can shrink by itself, with some combination of attributes."""
        failure = self._run([name], self.choices)
        if failure is None:
            return None
        probe = _Shapes(self.spaces, dict(self.choices))
        while failure is not None and probe._next_choice(failure, [name]):
            failure = probe._run([name], probe.choices)
        return failure

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


class _Values:
    """The part of the trial that needs values: the projection identity."""

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces

    def settle(self) -> Spaces:
        names = [space.name for space in self.spaces.shrinkable]
        if not names or self._holds(names):
            return self.spaces
        plain = self.spaces
        rescaled = {
            ("gain", tap.name): True
            for tap in plain.taps.values()
            if tap.of_activations and not tap.gain
        }
        if rescaled:  # the code may divide by the square root of the width it finds
            self.spaces = replace(plain, hints={**plain.hints, **rescaled})
            if self._holds(names):
                return self.spaces
            self.spaces = plain
        culprits = self._search(names)
        return self.spaces.freeze(culprits)

    def _prove(self, names: list[str]) -> Proof | str:
        kept = {name: trial_kept(self.spaces[name]) for name in names}
        T = random_T(Cut(self.spaces, kept))
        cut = Cut(self.spaces, kept, T)
        try:
            return prove(self.spaces, cut, shrink(self.spaces, kept, T))
        except Exception as problem:  # whatever the model's own code raises
            return _first_line(problem)

    def _holds(self, names: list[str]) -> bool:
        return bool(proof := self._prove(names)) and isinstance(proof, Proof)

    def _search(self, names: list[str]) -> dict[str, str]:
        """The spaces that fail, found by halving."""
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


def _failure(problem: BaseException, model: nn.Module) -> _Failure:
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []
    frame: TracebackType | None = problem.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            running.append(names[id(owner)])
        frame = frame.tb_next
    return _Failure(list(dict.fromkeys(reversed(running))) or [""], _first_line(problem))


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:160]


def _weights(space: ChannelSpace) -> tuple[str, ...]:
    return (*space.producers, *space.carriers, *space.consumers)


def _twins(name: str, running: list[str], modules: dict[str, nn.Module], names: list[str]) -> list[str]:
    """Spaces of the same name below other modules of the class that failed."""
    for module in running:
        if module and name.startswith(f"{module}."):
            suffix = name[len(module) :]
            kind = type(modules[module])
            twins = [f"{other}{suffix}" for other, m in modules.items() if type(m) is kind]
            return [twin for twin in twins if twin in names and twin != name]
    return []

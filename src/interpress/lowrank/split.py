"""Split a budget between channels and ranks, layer by layer.

The rank of a layer takes part in the allocation as the width of a channel space does. Its loss is
the energy that it discards. Its cost is that of the two thin layers, or that of the whole layer if
this is less, at the widths of the spaces around it. So one greedy path takes the step with the
least predicted loss per cost saved, whichever kind it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.allocation.paths import fit_budget, greedy_path
from interpress.allocation.problem import Problem, Widths
from interpress.lowrank.layers import FactorableLayer
from interpress.lowrank.spectra import Spectra
from interpress.refit.layer_pair import kept_outputs
from interpress.spaces.cost import LayerSizes
from interpress.spaces.meter import Meter
from interpress.surgery.cut import Cut

_GRAIN = 64  # one step is a 64th of a space or rank, fine enough for any budget
_STRIDES = (1, 2, 4, 8)  # steps at once, so that a flat part of the loss curve is crossed
_FURTHER = (16, 24, 32, 40, 48)
"""Further strides for a rank: a layer costs less as two only from about half of its rank on."""
_ROUNDS = 3
"""How often the losses of ranks are computed again for the outputs that the last split keeps."""
_RANK = "rank of "


class Split(NamedTuple):
    """The widths of the spaces, and the ranks of the layers that become two."""

    widths: Widths
    ranks: dict[str, int]


@dataclass(frozen=True, eq=False)
class _JointProblem(Problem):
    """A problem in which ranks take part under names of their own."""

    full_ranks: Mapping[str, int] = field(default_factory=dict)

    def full(self) -> Widths:
        """Return the widths of the original network, and the full ranks."""
        return super().full() | dict(self.full_ranks)


def split_budget(
    problem: Problem, spectra: Spectra, fraction: float, resource: str, *, price: float = 1.0
) -> Split:
    """Return widths and ranks that keep a fraction of a resource and lose least.

    `price` multiplies the predicted losses of ranks, in comparison with those of channels.
    """
    sizes = {
        layer.name: problem.spaces.cost.layer_sizes(layer.dense.weight) for layer in spectra.layers
    }
    meter = _JointMeter(problem.meter, spectra.layers, sizes, resource)
    split = Split({}, {})
    for _ in range(_ROUNDS):
        before = split
        joint = _joint(problem, spectra, meter, split.widths, price)
        widths = fit_budget(joint, _path(joint), fraction, resource)
        split = meter.split(widths)
        if split == before:
            break
    return split


def _joint(
    problem: Problem, spectra: Spectra, meter: _JointMeter, widths: Widths, price: float
) -> _JointProblem:
    """Return the problem with ranks; their losses are those of the outputs kept at some widths."""
    kept = problem.plan({**problem.full(), **widths}).kept
    cut = Cut(problem.spaces, kept)
    losses: dict[str, Tensor] = dict(problem.losses)
    allowed = dict(problem.allowed)
    full = {}
    for layer in spectra.layers:
        name, outputs = _RANK + layer.name, layer.dense.shape[0]
        losses[name] = price * spectra.losses(layer, outputs_kept(cut, layer))
        full[name] = min(outputs, layer.dense.unknowns)
        allowed[name] = list(range(full[name], 0, -1))
        losses[name][full[name] :] = 0.0
    plain = {item.name: getattr(problem, item.name) for item in fields(problem)}
    plain |= {"losses": losses, "allowed": allowed, "meter": meter}
    return _JointProblem(**plain, full_ranks=full)


def outputs_kept(cut: Cut, layer: FactorableLayer) -> Tensor:
    """Return which outputs of a layer a cut keeps."""
    kept = kept_outputs(cut, layer.dense.weight)
    return torch.arange(layer.dense.shape[0]) if kept is None else kept


def _path(problem: _JointProblem) -> Iterator[Widths]:
    """Yield widths and ranks, each time taking the step with the least loss per cost saved."""
    index = {name: {w: i for i, w in enumerate(sizes)} for name, sizes in problem.allowed.items()}

    def moves(name: str, width: int) -> list[int]:
        allowed, here = problem.allowed[name], index[name][width]
        grain = max(1, len(allowed) // _GRAIN)
        strides = _STRIDES + _FURTHER if name in problem.full_ranks else _STRIDES
        within = [allowed[here + grain * s] for s in strides if here + grain * s < len(allowed)]
        return within or allowed[here + 1 :][-1:]

    def score(widths: Widths, name: str, width: int, saved: float) -> float:
        losses = problem.losses[name]
        return float(losses[width] - losses[widths[name]]) / saved

    return greedy_path(problem, moves, score)


class _JointMeter(Meter):
    """The cost of a network at any widths and ranks."""

    def __init__(
        self,
        meter: Meter,
        layers: Sequence[FactorableLayer],
        sizes: Mapping[str, LayerSizes],
        resource: str,
    ) -> None:
        self._meter, self._layer_sizes = meter, sizes
        self._factor = {
            layer.name: 2.0 * layer.positions if resource == "flops" else 1.0 for layer in layers
        }
        self._around: dict[str, set[str]] = {}
        for layer in layers:
            for space in sizes[layer.name].spaces.values():
                self._around.setdefault(space.name, set()).add(layer.name)

    def total(self, widths: Mapping[str, int]) -> float:
        """Return the cost at these widths and ranks, everything else whole."""
        spaces, ranks = _parted(widths)
        saved = sum(self._saved_by_rank(name, rank, spaces) for name, rank in ranks.items())
        return self._meter.total(spaces) - saved

    def saved(self, widths: Mapping[str, int], name: str, width: int) -> float:
        """Return how much the cost falls if one width or rank changes to `width`."""
        spaces, ranks = _parted(widths)
        if name.startswith(_RANK):
            layer = name.removeprefix(_RANK)
            after = self._saved_by_rank(layer, width, spaces)
            return after - self._saved_by_rank(layer, ranks[layer], spaces)
        changed = {**spaces, name: width}
        saved = self._meter.saved(spaces, name, width)
        for layer in self._around.get(name, ()):
            if layer in ranks:
                saved += self._saved_by_rank(layer, ranks[layer], changed)
                saved -= self._saved_by_rank(layer, ranks[layer], spaces)
        return saved

    def savings(self, widths: Mapping[str, int], name: str, others: Sequence[int]) -> list[float]:
        """Return how much the cost falls for every one of some other widths."""
        return [self.saved(widths, name, width) for width in others]

    def neighbours(self, name: str) -> set[str]:
        """Return the spaces and ranks whose savings depend on this one, itself included."""
        if name.startswith(_RANK):
            spaces = self._layer_sizes[name.removeprefix(_RANK)].spaces.values()
            return {name, *(space.name for space in spaces)}
        near = self._meter.neighbours(name)
        return near | {_RANK + layer for layer in self._around.get(name, ())}

    def split(self, widths: Mapping[str, int]) -> Split:
        """Return the widths, and the ranks at which two thin layers cost less than one."""
        spaces, ranks = _parted(widths)
        useful = {n: r for n, r in ranks.items() if self._saved_by_rank(n, r, spaces) > 0}
        return Split(spaces, useful)

    def _saved_by_rank(self, layer: str, rank: int, widths: Mapping[str, int]) -> float:
        outputs, inputs = self._layer_sizes[layer].at(widths)
        saved = outputs * inputs - rank * (outputs + inputs)
        return max(0.0, self._factor[layer] * saved)


def _parted(widths: Mapping[str, int]) -> tuple[Widths, Widths]:
    """Return the widths of spaces, and the ranks of layers."""
    ranks = {n.removeprefix(_RANK): w for n, w in widths.items() if n.startswith(_RANK)}
    return {n: w for n, w in widths.items() if not n.startswith(_RANK)}, ranks

"""What calibration says about one space: how its channels are read, and what losing some costs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

import torch
from torch import Tensor

from interpress.calibration.statistics import Statistics
from interpress.errors import ArgumentError
from interpress.graph.dense import DenseLayer
from interpress.graph.patterns import arguments_of, batch_norm_after
from interpress.linalg.elimination import Consumer
from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.linalg.ordering import ColumnOrdering
from interpress.linalg.pivoting import order_as_given
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Absorber, Tap


@dataclass(frozen=True, eq=False)
class TapView:
    """One tap as one space sees it: its own columns, unit by unit."""

    tap: str
    factor: RFactor
    """Of the space's columns alone, the columns of a unit side by side."""
    weigh: Callable[[], Tensor] = field(repr=False)
    per_unit: int
    outcome: float | None = None
    """Variance of what the reader's output becomes, per row, where that is known."""
    free: Callable[[], Consumer | None] = field(default=lambda: None, repr=False)

    @cached_property
    def patches(self) -> Consumer | None:
        """The same reading with every input of the reader free, where it was measured."""
        return self.free()

    @cached_property
    def H(self) -> Tensor:
        """`U @ U.T`, `U` the weights that read these columns."""
        return self.weigh().to(self.factor.device)

    @cached_property
    def effect(self) -> float:
        """`||Z @ U||_F ** 2`."""
        return float((self.factor.G * self.H).sum())

    @property
    def energy(self) -> float:
        """What an error of this reading is relative to: what its output becomes, or is."""
        return self.effect if self.outcome is None else self.outcome * self.factor.rows

    def columns(self, units: Tensor) -> Tensor:
        """The columns of some units, in their order."""
        spread = units[:, None] * self.per_unit + torch.arange(self.per_unit)
        return spread.reshape(-1).to(self.factor.device)

    def ordering(self, units: Tensor) -> ColumnOrdering:
        """The columns in the order of their units."""
        return order_as_given(self.factor, self.columns(units))

    def squared_error(self, units: Tensor, width: int) -> float:
        """`||(Z - Z[:, kept] @ T) @ U||_F ** 2` with the first units kept."""
        kept, rest = self.columns(units[:width]), self.columns(units[width:])
        G = self.factor.G
        lower = safe_cholesky(G[kept][:, kept])
        if lower is None:
            return float(self.ordering(units).weighted_tails(self.H)[len(kept)]) ** 2
        side = torch.linalg.solve_triangular(lower, G[kept][:, rest], upper=False)
        left = torch.addmm(G[rest][:, rest], side.T, side, alpha=-1)  # Schur complement
        return max(float((left * self.H[rest][:, rest]).sum()), 0.0)


@dataclass(frozen=True, eq=False)
class TapSample:
    """What one tap's reader gets on some examples."""

    operand: Tensor
    tap: Tap
    units: Callable[[ChannelSpace], Tensor] = field(repr=False)
    """Per column of the tap, the unit of a space it belongs to, or -1."""
    dense: DenseLayer | None
    """The reader, where it is one plain dense layer."""
    weight: Tensor | None
    """Its weight."""

    def columns(self) -> Tensor:
        """`Z`: rows by columns."""
        return self.tap.columns(self.operand, self.tap.sites[0])

    def maps(self) -> Tensor:
        """(examples, columns, height, width): what a channel is on one example, as a picture."""
        site, shape = self.tap.sites[0], self.operand.shape
        if site.fold is not None:  # the batch is merged into another dim: one number each
            return self.columns()[:, :, None, None]
        rest = [shape[dim] for dim in range(len(shape)) if dim not in site.dims]
        apart = self.columns().reshape(rest[0], -1, self.tap.size).mT
        return apart.unflatten(2, rest[1:] if len(rest) == 3 else (-1, 1))


@dataclass(frozen=True, eq=False)
class ProducerWeights:
    """The weights that make and carry the units of one space."""

    space: ChannelSpace
    _spaces: Spaces = field(repr=False)
    _parameters: Mapping[str, Tensor] = field(repr=False)

    def filters(self) -> list[Tensor]:
        """Per producer, one row of weights per unit."""
        return [rows for name in self.space.producers for rows in self._rows(name)]

    def scales(self) -> list[Tensor]:
        """Per normalization that carries the space, one row of scales per unit."""
        modules = self._spaces.program.model
        found = []
        for name in self.space.carriers:
            owner, _, attribute = name.rpartition(".")
            if attribute == "weight" and hasattr(modules.get_submodule(owner), "running_var"):
                found += self._rows(name)
        return found

    def _rows(self, name: str) -> list[Tensor]:
        """A weight as one row per unit, along the dim that makes or carries them."""
        weight = self._parameters[name].detach().double().cpu()
        taps = self._spaces.taps.values()
        reading = {own.dim for tap in taps for own in tap.absorbers if own.weight == name}
        found = []
        for layer in self._spaces.trace.weights[name].channels():
            if len(layer.support) != 1 or layer.support[0] in reading:
                continue
            units = units_of(self._spaces, self.space, layer.labels.reshape(-1))
            counts = torch.bincount(units[units >= 0], minlength=self.space.size)
            if bool((counts == counts[0]).all()) and int(counts[0]):
                own = torch.argsort(torch.where(units >= 0, units, self.space.size), stable=True)
                rows = weight.movedim(layer.support[0], 0)[own[: int(counts.sum())]]
                found.append(rows.reshape(self.space.size, -1))
        return found


@dataclass(frozen=True, eq=False)
class Profile:
    """A shrinkable space with everything that reads it."""

    space: ChannelSpace
    readings: tuple[TapView, ...]
    making: ProducerWeights
    look: Callable[[str], TapSample] = field(repr=False)
    """What stands at a tap on some calibration examples; needs the data themselves."""
    seed: int = 0

    def generator(self) -> torch.Generator:
        """Random numbers of this space's own."""
        own = zlib.crc32(self.space.name.encode())
        return torch.Generator().manual_seed(own + self.seed)

    @property
    def in_blocks(self) -> bool:
        """Whether some unit is several columns wide, as a head is."""
        return any(reading.per_unit > 1 for reading in self.readings)

    @cached_property
    def factor(self) -> RFactor:
        """The factor of all readings stacked, each scaled to the same size."""
        if len(self.readings) == 1:
            return self.readings[0].factor
        parts = [reading.factor.G / _trace(reading.factor.G) for reading in self.readings]
        rows = sum(reading.factor.rows for reading in self.readings)
        return RFactor.from_gram(torch.stack(parts).sum(0), rows)

    @cached_property
    def H(self) -> Tensor:
        """The weights of all readers, each scaled to the same effect."""
        if len(self.readings) == 1:
            return self.readings[0].H
        scaled = [r.H * (_trace(r.factor.G) / r.energy) for r in self.readings if r.energy > 0]
        return torch.stack(scaled).sum(0) if scaled else torch.zeros_like(self.readings[0].H)

    def squared_errors(self, units: Tensor) -> Tensor:
        """(size + 1,) relative squared errors of all readings with the first k units kept."""
        total = torch.zeros(self.space.size + 1, dtype=torch.float64)
        for reading in self.readings:
            if reading.energy > 0:
                tails = reading.ordering(units).weighted_tails(reading.H)[:: reading.per_unit]
                total += tails.cpu().square() / reading.energy
        return total

    def squared_error(self, units: Tensor, width: int) -> float:
        """The same at one width alone, which costs far less."""
        return sum(r.squared_error(units, width) / r.energy for r in self.readings if r.energy > 0)

    @property
    def rows(self) -> int:
        """How many rows were measured where they were fewest."""
        return min(reading.factor.rows for reading in self.readings)


def profiles_of(
    spaces: Spaces, seen: Statistics, look: Callable[[str], TapSample] | None = None, seed: int = 0
) -> dict[str, Profile]:
    """The profile of every shrinkable space."""
    parameters = spaces.program.parameters()
    weights = cache(lambda name: reading_weights(spaces, spaces.taps[name], parameters))
    found = {}
    for space in spaces.shrinkable:
        readings = [
            _reading(spaces, space, name, seen, partial(weights, name), parameters)
            for name in space.taps
        ]
        measured = tuple(reading for reading in readings if reading is not None)
        making = ProducerWeights(space, spaces, parameters)
        found[space.name] = Profile(space, measured, making, look or blind, seed)
    return found


def blind(tap: str) -> TapSample:
    """Where there are no data: say so."""
    raise ArgumentError(
        f"this selection looks at activations ({tap!r}), and there are no data to look at here; "
        "choose another one, as selection='weights', or pass calibration= to Analysis.load"
    )


def columns_of(spaces: Spaces, space: ChannelSpace, tap: Tap) -> Tensor:
    """Per column of a tap, the unit of a space it belongs to, or -1."""
    return units_of(spaces, space, tap.labels)


def units_of(spaces: Spaces, space: ChannelSpace, labels: Tensor) -> Tensor:
    """Per label, the unit of a space it belongs to, or -1."""
    membership, index = spaces.membership, spaces.index(space)
    where, unit = (
        (membership.head_space, membership.head)
        if space.heads
        else (membership.space, membership.unit)
    )
    return torch.where(where[labels] == index, unit[labels], -1)


def _reading(
    spaces: Spaces,
    space: ChannelSpace,
    name: str,
    seen: Statistics,
    weigh: Callable[[], Tensor],
    parameters: Mapping[str, Tensor],
) -> TapView | None:
    factor = seen.factors[name]
    units = columns_of(spaces, space, spaces.taps[name])
    counts = torch.bincount(units[units >= 0], minlength=space.size)
    per_unit = int(counts.max())
    if per_unit == 0 or not bool((counts == per_unit).all()):
        return None
    own = torch.argsort(torch.where(units >= 0, units, space.size), stable=True)
    own = own[: space.size * per_unit].to(factor.device)
    if torch.equal(own.cpu(), torch.arange(factor.n)):
        part = factor
    elif factor.gram is not None:
        part = RFactor(factor.rows, factor.floor, gram=factor.gram[own][:, own])
    else:
        assert factor.root is not None
        part = RFactor(factor.rows, factor.floor, root=factor.root[:, own])
    outcome = seen.energies.get(name) or None
    free = partial(_patches, spaces, spaces.taps[name], units, seen, parameters)
    here = own.cpu()
    return TapView(name, part, lambda: weigh()[here][:, here], per_unit, outcome, free)


def _patches(
    spaces: Spaces,
    tap: Tap,
    units: Tensor,
    seen: Statistics,
    parameters: Mapping[str, Tensor],
) -> Consumer | None:
    """The reader of a tap as a regression on patches, the inputs of every unit a block."""
    moments, energy = seen.moments.get(tap.name), seen.energies.get(tap.name, 0.0)
    (absorber,) = tap.absorbers if energy > 0 else (None,)
    if absorber is None or absorber.column.ndim > 1:
        return None
    node = tap.sites[0].op.node
    weight = parameters[absorber.weight]
    norm = batch_norm_after(spaces.program, node, parameters)
    if norm is not None:
        weight = weight * norm.scale.to(weight).reshape(-1, *[1] * (weight.ndim - 1))
    if moments is None:
        return _channels(absorber, weight, units, seen.factors[tap.name], energy)
    W = weight.to(torch.promote_types(weight.dtype, torch.float32)).flatten(1)
    if moments.basis is not None:
        apart = W.reshape(len(W), *moments.basis.shape[:2])
        W = torch.einsum("ock,ckp->ocp", apart, moments.basis.to(W)).flatten(1)
    column = absorber.column.repeat_interleave(W.shape[1] // len(absorber.column))
    unit = torch.where(column >= 0, units[column.clamp(min=0)], -1)
    counts = torch.bincount(unit[unit >= 0])
    if not bool((counts == counts[0]).all()):
        return None
    inputs = torch.argsort(torch.where(unit >= 0, unit, len(counts)), stable=True)
    blocks = inputs[: int(counts.sum())].reshape(len(counts), -1)
    shifts = norm is not None or arguments_of(node).get("bias") is not None
    G = moments.centred() if shifts else moments.whole()
    return Consumer(G.to(W), W.T, blocks, energy * moments.rows)


def _channels(
    absorber: Absorber, weight: Tensor, units: Tensor, factor: RFactor, energy: float
) -> Consumer | None:
    """The same with one input per channel, for readers of too many: as `T` has it."""
    if bool((absorber.repeat > 0).any()) or bool((absorber.column < 0).any()):
        return None
    rows = weight.to(factor.G).movedim(absorber.dim, 0).reshape(len(absorber.column), -1)
    U = torch.empty_like(rows)
    U[absorber.column] = rows
    counts = torch.bincount(units[units >= 0])
    if not bool((counts == counts[0]).all()):
        return None
    own = torch.argsort(torch.where(units >= 0, units, len(counts)), stable=True)
    blocks = own[: int(counts.sum())].reshape(len(counts), -1)
    return Consumer(factor.G, U, blocks, energy * factor.rows)


def reading_weights(spaces: Spaces, tap: Tap, parameters: Mapping[str, Tensor]) -> Tensor:
    """`H = U @ U.T` of a tap: all weights that read it, each output scaled as its batch norm does.

    Where two activations meet (query and key), the weight that makes the other one stands for it.
    """
    H = torch.zeros(tap.size, tap.size, dtype=torch.float64)
    scale = None
    norm = batch_norm_after(spaces.program, tap.sites[0].op.node, parameters)
    if norm is not None:
        scale = norm.scale.cpu()
    for absorber in tap.absorbers:
        weight = parameters[absorber.weight].double().cpu()
        if scale is not None and absorber.dim == 1 and len(scale) == len(weight):
            weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
        H += _outer(weight, absorber, tap.size)
    return H


def _outer(weight: Tensor, absorber: Absorber, size: int) -> Tensor:
    """`U @ U.T` for one weight, over all its other dims and its repeats."""
    H = torch.zeros(size, size, dtype=weight.dtype)
    if absorber.column.ndim == 2:  # a grouped convolution: one block per group
        for block, columns in zip(weight.chunk(len(absorber.column)), absorber.column, strict=True):
            U = block.movedim(1, 0).reshape(block.shape[1], -1)
            H[columns[:, None], columns] += U @ U.T
        return H
    rows = weight.movedim(absorber.dim, 0).reshape(len(absorber.column), -1)
    for repeat in absorber.repeat[absorber.column >= 0].unique():
        mine = torch.nonzero((absorber.column >= 0) & (absorber.repeat == repeat)).reshape(-1)
        columns, U = absorber.column[mine], rows[mine]
        H[columns[:, None], columns] += U @ U.T
    return H


def _trace(G: Tensor) -> float:
    return max(float(G.diagonal().sum()), 1e-300)

"""Find the taps of a trace: where channels are read, and which weights can absorb `T` there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.labels.labelling import FIXED
from interpress.labels.trace import Op, Read, Side, Trace, Value
from interpress.spaces.classes import Classes
from interpress.spaces.taps import Absorber, Site, Tap

_PRODUCTS = (
    "aten.linear", "aten.addmm", "aten.mm", "aten.matmul", "aten.conv1d", "aten.conv2d",
    "aten.conv3d", "aten.einsum",
)  # fmt: skip

_WeightDims = list[tuple[str, int]]
"""Weights and the dim along which each one absorbs `T`."""
_Reading = dict[int, tuple[int, int]]
"""Label of an absorbing weight to the (column, repeat) that it reads."""


@dataclass
class TapFinder:
    """Turns the reads of a trace into taps. Reads that cannot absorb `T` become problems."""

    trace: Trace
    classes: Classes
    problems: list[tuple[Tensor, str]] = field(default_factory=list)
    """Labels that cannot be removed, because some read of them cannot absorb `T`, and why."""

    def __post_init__(self) -> None:
        self._users = _users_of_weights(self.trace)
        produced = [labels.reshape(-1) for labels in self.trace.produced]
        self._produced = torch.cat([torch.zeros(0, dtype=torch.long), *produced])
        copies = [copies.copied[0] for copies in self.trace.copies]
        self._copies = torch.cat([torch.zeros(0, dtype=torch.long), *copies])

    def find(self) -> list[Tap]:
        """Return all taps. Reads that share an absorbing weight share a tap."""
        absorptions = [self._absorption(read) for read in self.trace.reads]
        by_weight: dict[tuple[str, int], dict[frozenset[int], list[_Absorption]]] = {}
        for absorption in self._with_clear_roles([a for a in absorptions if a is not None]):
            entries = frozenset(absorption.absorbing.aligned.reshape(-1).tolist())
            parts = by_weight.setdefault(absorption.weights[0], {})
            parts.setdefault(entries, []).append(absorption)
        taps = []
        for parts in by_weight.values():
            if sum(map(len, parts)) == len(frozenset().union(*parts)):
                taps += [self._tap(absorptions) for absorptions in parts.values()]
                continue
            for absorption in (a for absorptions in parts.values() for a in absorptions):
                weight = absorption.weights[0][0]
                self._give_up(absorption.read, f"{weight} is read in parts that overlap")
        return [tap for tap in taps if tap is not None]

    def _with_clear_roles(self, absorptions: list[_Absorption]) -> list[_Absorption]:
        """Return the reads whose tap does not depend on a weight that absorbs `T` elsewhere.

        A weight that absorbs `T` along a dim cannot also be selected along it.
        """
        clear = []
        absorbed = [a.absorbing.aligned.reshape(-1) for a in absorptions]
        for absorption in absorptions:
            if bool(torch.isin(absorption.tapped.aligned, torch.cat(absorbed)).any()):
                self._give_up(
                    absorption.read, "the same weight would have to be selected and absorb T"
                )
            else:
                clear.append(absorption)
        return clear

    def _absorption(self, read: Read) -> _Absorption | None:
        """Return which operand of a read absorbs `T`, and through which weights."""
        reasons = []
        for index in [1, 0] if _behind(read.sides[1].value).weight else [0, 1]:
            side = read.sides[index]
            weights = self._absorbing_weights(side, side.value)
            if isinstance(weights, str):
                reasons.append(weights)
            elif side.aligned.unique().numel() != side.aligned.numel() or bool(
                torch.isin(side.aligned, self._copies).any()
            ):
                reasons.append("several channels share the entry that would absorb T")
            elif (conflict := self._used_elsewhere(side, weights)) is not None:
                reasons.append(conflict)
            else:
                return _Absorption(read, index, weights)
        self._give_up(read, reasons[0])
        return None

    def _give_up(self, read: Read, reason: str) -> None:
        for side in read.sides:
            self.problems.append((side.labels.reshape(-1), reason))

    def _absorbing_weights(self, side: Side, value: Value) -> _WeightDims | str:
        """Return the weights behind an operand, or why they cannot absorb `T`."""
        ids = side.aligned.unique()
        while value.weight is None:
            op = value.op
            if op is None:
                return "it is multiplied by an input of the model"
            carrying = [v for v in op.inputs() if v.carries(ids)]
            if len(carrying) != 1 or not (op.linear or op.family in _PRODUCTS):
                return f"{op.location} stands between it and a weight that could absorb T"
            value = carrying[0]
            if not op.linear:
                return self._weight_and_bias(op, value, ids)
        return _weight_dim(value, ids)

    def _weight_and_bias(self, op: Op, value: Value, ids: Tensor) -> _WeightDims | str:
        """Return the weight and bias of the layer that makes an operand."""
        weight = _behind(value)
        if weight.weight is None:
            return f"{op.location} makes it from something that cannot absorb T"
        weight_dims = _weight_dim(weight, ids)
        bias = op.get("bias") if "bias" in op.arguments else op.get("self")
        if isinstance(weight_dims, str) or not isinstance(bias, Value) or bias is value:
            return weight_dims
        if bias.weight is None or len(bias.channels()) != 1:
            return f"{op.location} adds something to it that cannot absorb T"
        return [*weight_dims, (bias.weight, bias.channels()[0].support[0])]

    def _used_elsewhere(self, side: Side, weights: _WeightDims) -> str | None:
        """Return why `T` would change another use of an absorbing weight, if it would."""
        ids = side.aligned.unique()
        name = weights[0][0]
        if _behind(side.value).weight and bool(torch.isin(ids, self._produced).any()):
            return f"the same weight ({name}) both makes and reads it"
        reading = {read.op for read in self.trace.reads}
        for op in self._users.get(name, ()):
            if op.linear or op in reading or op.family in _PRODUCTS:
                continue
            if any(value.carries(ids) for value in op.inputs()):
                return f"{op.location} also uses the weight that would absorb T ({name})"
        return None

    def _tap(self, absorptions: list[_Absorption]) -> Tap | None:
        """Return the tap of reads that share an absorbing weight, if they fit together."""
        read, first = absorptions[0].read, absorptions[0].tapped
        labels, groups = _in_order_of_appearance(first.aligned)
        column_of = {int(label): column for column, label in enumerate(labels)}
        sites = []
        for absorption in absorptions:
            site = _site(absorption, first, column_of)
            if site is None:
                where = absorption.read.op.location
                self._give_up(absorption.read, f"{where} reads it in another order")
                return None
            sites.append(site)
        absorbers = []
        for weight, dim in dict.fromkeys(pair for a in absorptions for pair in a.weights):
            absorber = self._absorber(weight, dim, absorptions[0], column_of)
            if absorber is None:
                self._give_up(read, f"{weight} does not line up with what it reads")
                return None
            absorbers.append(absorber)
        name = f"{absorptions[0].weights[0][0]} reads {read.op.node.name}"
        gain = any(absorption.read.scaled_by_width for absorption in absorptions)
        of_activations = _behind(absorptions[0].absorbing.value).weight is None
        return Tap(name, tuple(sites), labels, groups, tuple(absorbers), gain, of_activations)

    def _absorber(
        self, weight: str, dim: int, absorption: _Absorption, column_of: dict[int, int]
    ) -> Absorber | None:
        """Return the column and repeat that every entry of a weight reads."""
        reading = _paired(absorption, column_of)
        if reading is None:
            return None
        labellings = [la for la in self.trace.weights[weight].channels() if la.support[-1] == dim]
        grouped = len(labellings[0].support) == 2  # a grouped convolution: one row per group
        labels = absorption.absorbing.aligned if grouped else labellings[0].labels
        flat = labels.reshape(-1).tolist()
        if not set(flat) & set(reading):  # a bias has the channels of its weight, not the labels
            reading = self._for_other_labels(flat, reading)
        pairs = [reading.get(label, (-1, 0)) for label in flat]
        column, repeat = torch.tensor(pairs).T
        shape = labels.shape if labels.ndim == 2 and grouped else (-1,)
        return Absorber(weight, dim, column.reshape(shape), repeat.reshape(shape))

    def _for_other_labels(self, labels: list[int], reading: _Reading) -> _Reading:
        """Return what other labels of the same classes read, matched in order."""
        fine = self.classes.fine
        queues: dict[int, list[tuple[int, int]]] = {}
        for label, column_and_repeat in sorted(reading.items()):
            queues.setdefault(int(fine[label]), []).append(column_and_repeat)
        return {label: queues[c].pop(0) for label in labels if queues.get(c := int(fine[label]))}


@dataclass(frozen=True, eq=False)
class _Absorption:
    """A read, the operand of it that absorbs `T`, and the weights that do so."""

    read: Read
    index: int
    weights: _WeightDims

    @property
    def absorbing(self) -> Side:
        return self.read.sides[self.index]

    @property
    def tapped(self) -> Side:
        return self.read.sides[1 - self.index]


def _paired(absorption: _Absorption, column_of: dict[int, int]) -> _Reading | None:
    """Return which column and repeat each label of the absorbing operand is multiplied with.

    None if a label occurs twice.
    """
    reading: _Reading = {}
    repeats: dict[int, int] = {}
    for absorbing_label, tapped_label in zip(
        absorption.absorbing.aligned.reshape(-1).tolist(),
        absorption.tapped.aligned.reshape(-1).tolist(),
        strict=True,
    ):
        if absorbing_label in reading:
            return None
        repeat = repeats.get(tapped_label, 0)
        reading[absorbing_label] = (column_of.get(tapped_label, -1), repeat)
        repeats[tapped_label] = repeat + 1
    return reading


def _behind(value: Value) -> Value:
    """Return the value before all moves and rescalings that led to this one."""
    while value.op is not None and value.op.linear and len(value.op.inputs()) == 1:
        value = value.op.inputs()[0]
    return value


def _weight_dim(value: Value, ids: Tensor) -> _WeightDims | str:
    labellings = [la for la in value.channels() if bool(torch.isin(la.labels, ids).any())]
    if len(labellings) != 1 or value.weight is None:
        return "a weight reads it along several dims at once"
    return [(value.weight, labellings[0].support[-1])]


def _users_of_weights(trace: Trace) -> dict[str, list[Op]]:
    """Return, per weight, the operators with an input that carries one of its labels."""
    owner = torch.full((trace.size,), -1)
    names = list(trace.weights)
    for index, name in enumerate(names):
        for labelling in trace.weights[name].labellings:
            owner[labelling.labels.reshape(-1)] = index
    users: dict[str, list[Op]] = {}
    owners_by_id: dict[int, list[int]] = {}  # many values share one label tensor
    for op in trace.ops:
        owners: set[int] = set()
        for labelling in (labelling for value in op.inputs() for labelling in value.channels()):
            key = id(labelling.labels)
            if key not in owners_by_id:
                owners_by_id[key] = owner[labelling.labels.reshape(-1)].unique().tolist()
            owners.update(owners_by_id[key])
        for index in owners - {-1}:
            users.setdefault(names[index], []).append(op)
    return users


def _in_order_of_appearance(aligned: Tensor) -> tuple[Tensor, Tensor]:
    """Return the labels in order of appearance, and the first row that each appears in."""
    first_row: dict[int, int] = {}
    for row, labels in enumerate(aligned.tolist()):
        for label in labels:
            if label != FIXED:
                first_row.setdefault(label, row)
    return torch.tensor(list(first_row)), torch.tensor(list(first_row.values()))


def _site(absorption: _Absorption, first: Side, column_of: dict[int, int]) -> Site | None:
    """Return where a read finds the columns of the tap that was numbered from side `first`."""
    side = absorption.tapped
    if side.aligned.shape != first.aligned.shape:
        return None
    label_in_first = dict(
        zip(side.aligned.reshape(-1).tolist(), first.aligned.reshape(-1).tolist(), strict=True)
    )
    folding = _folding(side)
    if folding is None:
        return None
    places: dict[int, list[int]] = {}
    for position, label in enumerate(folding[1].reshape(-1).tolist()):
        if label == FIXED:
            continue
        if label_in_first.get(label) not in column_of:
            return None
        places.setdefault(column_of[label_in_first[label]], []).append(position)
    repeats = {len(positions) for positions in places.values()}
    if len(places) != len(column_of) or len(repeats) != 1:
        return None
    table = torch.tensor([places[column] for column in range(len(column_of))]).T
    return Site(absorption.read.op, side.argument, side.dims, table, folding[0])


def _folding(side: Side) -> tuple[tuple[int, int] | None, Tensor] | None:
    """Return the dim that the batch is merged into, if any, and the labels without the batch.

    The dim comes with the length of the part that is not the batch. The whole result is None if
    the labels do not repeat along the dim.
    """
    varying = [dim for dim in side.dims if dim in side.value.varying]
    if not varying:
        return None, side.labels
    axis = side.dims.index(varying[0])
    rows = side.labels.movedim(axis, 0)
    for length in range(1, len(rows)):
        if len(rows) % length == 0:
            period = rows[:length]
            if torch.equal(rows, period.repeat(len(rows) // length, *[1] * (rows.ndim - 1))):
                return (varying[0], length), period.movedim(0, axis)
    return None

"""Find the taps of a trace: where channels are read, and which weights can absorb `T` there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.labels.labelling import FIXED
from interpress.labels.trace import Op, Read, Side, Trace, Value
from interpress.spaces.classes import Classes
from interpress.spaces.taps import Absorber, Site, Tap


@dataclass
class TapFinder:
    """Turns the reads of a trace into taps, and says why where it cannot."""

    trace: Trace
    classes: Classes
    problems: list[tuple[Tensor, str]] = field(default_factory=list)
    """Labels that may not leave alone because some read of them cannot be absorbed."""

    def __post_init__(self) -> None:
        self._users = _users(self.trace)
        produced = [labels.reshape(-1) for labels in self.trace.produced]
        self._produced = torch.cat([torch.zeros(0, dtype=torch.long), *produced])

    def find(self) -> list[Tap]:
        """All taps; reads that share a weight share a tap."""
        sides = [self._absorbing_side(read) for read in self.trace.reads]
        grouped: dict[tuple[str, int], dict[frozenset[int], list[_Chosen]]] = {}
        for chosen in self._with_clear_roles([side for side in sides if side is not None]):
            entries = frozenset(chosen.absorbing.aligned.reshape(-1).tolist())
            grouped.setdefault(chosen.weights[0], {}).setdefault(entries, []).append(chosen)
        taps = []
        for parts in grouped.values():
            if sum(map(len, parts)) == len(frozenset().union(*parts)):
                taps += [self._tap(members) for members in parts.values()]
                continue
            for chosen in (chosen for members in parts.values() for chosen in members):
                self._give_up(chosen.read, f"{chosen.weights[0][0]} is read in parts that overlap")
        return [tap for tap in taps if tap is not None]

    def _with_clear_roles(self, chosen: list[_Chosen]) -> list[_Chosen]:
        """A weight that absorbs T along a dim cannot also be selected along it."""
        clear = []
        absorbed = [c.absorbing.aligned.reshape(-1) for c in chosen]
        for c in chosen:
            if bool(torch.isin(c.tapped.aligned, torch.cat(absorbed)).any()):
                self._give_up(c.read, "the same weight would have to be selected and absorb T")
            else:
                clear.append(c)
        return clear

    def _absorbing_side(self, read: Read) -> _Chosen | None:
        """Which operand absorbs, and the weights (with their dims) that do it for it."""
        reasons = []
        for index in [1, 0] if _behind(read.sides[1].value).weight else [0, 1]:
            side = read.sides[index]
            weights = self._sources(side, side.value)
            if isinstance(weights, str):
                reasons.append(weights)
            elif side.aligned.unique().numel() != side.aligned.numel():
                reasons.append("several channels share the entry that would absorb T")
            elif (conflict := self._used_elsewhere(side, weights)) is not None:
                reasons.append(conflict)
            else:
                return _Chosen(read, index, weights)
        self._give_up(read, reasons[0])
        return None

    def _give_up(self, read: Read, reason: str) -> None:
        for side in read.sides:
            self.problems.append((side.labels.reshape(-1), reason))

    def _sources(self, side: Side, value: Value) -> list[tuple[str, int]] | str:
        """The weights behind an operand, or what stands between."""
        ids = side.aligned.unique()
        while value.weight is None:
            op = value.op
            if op is None:
                return "it is multiplied with an input of the model"
            carrying = [v for v in op.inputs() if v.carries(ids)]
            if len(carrying) != 1 or not (op.linear or op.family in _PRODUCTS):
                return f"{op.where} stands between it and a weight that could absorb T"
            value = carrying[0]
            if not op.linear:
                return self._product_sources(op, value, ids)
        return _weight_dim(value, ids)

    def _product_sources(self, op: Op, value: Value, ids: Tensor) -> list[tuple[str, int]] | str:
        """The weight of the layer that makes an operand, and its bias."""
        weight = _behind(value)
        if weight.weight is None:
            return f"{op.where} makes it from something that cannot absorb T"
        found = _weight_dim(weight, ids)
        bias = op.get("bias") if "bias" in op.arguments else op.get("self")
        if isinstance(found, str) or not isinstance(bias, Value) or bias is value:
            return found
        if bias.weight is None or len(bias.channels()) != 1:
            return f"{op.where} adds something to it that cannot absorb T"
        return [*found, (bias.weight, bias.channels()[0].support[0])]

    def _used_elsewhere(self, side: Side, weights: list[tuple[str, int]]) -> str | None:
        """What else uses an absorbing weight along that dim, in a way that T would change."""
        ids = side.aligned.unique()
        name = weights[0][0]
        if _behind(side.value).weight and bool(torch.isin(ids, self._produced).any()):
            return f"the same weight ({name}) both makes and reads it"
        reading = {read.op for read in self.trace.reads}
        for op in self._users.get(name, ()):
            if op.linear or op in reading or op.family in _PRODUCTS:
                continue
            if any(value.carries(ids) for value in op.inputs()):
                return f"{op.where} also uses the weight that would absorb T ({name})"
        return None

    def _tap(self, members: list[_Chosen]) -> Tap | None:
        read, first = members[0].read, members[0].tapped
        columns, groups = _first_seen(first.aligned)
        number = {int(label): index for index, label in enumerate(columns)}
        sites = []
        for chosen in members:
            site = _site(chosen, first, number)
            if site is None:
                self._give_up(chosen.read, f"{chosen.read.op.where} reads it in another order")
                return None
            sites.append(site)
        absorbers = []
        for weight, dim in dict.fromkeys(pair for chosen in members for pair in chosen.weights):
            absorber = self._absorber(weight, dim, members[0].absorbing, first, number)
            if absorber is None:
                self._give_up(read, f"{weight} does not line up with what it reads")
                return None
            absorbers.append(absorber)
        name = f"{members[0].weights[0][0]} reads {read.op.node.name}"
        gain = any(chosen.read.scaled_by_width for chosen in members)
        both = _behind(members[0].absorbing.value).weight is None
        return Tap(name, tuple(sites), columns, groups, tuple(absorbers), gain, both)

    def _absorber(
        self, weight: str, dim: int, own: Side, tap: Side, number: dict[int, int]
    ) -> Absorber | None:
        """Which column and repeat every entry of a weight reads, from where the two meet."""
        seen: dict[int, tuple[int, int]] = {}
        times: dict[int, int] = {}
        for mine, theirs in zip(
            own.aligned.reshape(-1).tolist(), tap.aligned.reshape(-1).tolist(), strict=True
        ):
            if mine in seen:
                return None
            seen[mine] = (number.get(theirs, -1), times.get(theirs, 0))
            times[theirs] = times.get(theirs, 0) + 1
        labellings = [la for la in self.trace.weights[weight].channels() if la.support[-1] == dim]
        labels = labellings[0].labels
        if len(labellings[0].support) == 2:  # a grouped convolution: one row per group
            labels = own.aligned
        flat = labels.reshape(-1).tolist()
        if not set(flat) & set(seen):  # a bias beside its weight: same channels, other labels
            seen = self._by_class(flat, seen)
        pairs = [seen.get(label, (-1, 0)) for label in flat]
        column, repeat = torch.tensor(pairs).T
        shape = labels.shape if labels.ndim == 2 and len(labellings[0].support) == 2 else (-1,)
        return Absorber(weight, dim, column.reshape(shape), repeat.reshape(shape))

    def _by_class(
        self, flat: list[int], seen: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        fine = self.classes.fine
        queues: dict[int, list[tuple[int, int]]] = {}
        for label, place in sorted(seen.items()):
            queues.setdefault(int(fine[label]), []).append(place)
        return {label: queues[c].pop(0) for label in flat if queues.get(c := int(fine[label]))}


_PRODUCTS = (
    "aten.linear", "aten.addmm", "aten.mm", "aten.matmul", "aten.conv1d", "aten.conv2d",
    "aten.conv3d", "aten.einsum",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Chosen:
    """A read with the operand that absorbs, and the weights that do it."""

    read: Read
    index: int
    weights: list[tuple[str, int]]

    @property
    def absorbing(self) -> Side:
        return self.read.sides[self.index]

    @property
    def tapped(self) -> Side:
        return self.read.sides[1 - self.index]


def _behind(value: Value) -> Value:
    """The value before moves and rescalings that have no other operand."""
    while value.op is not None and value.op.linear and len(value.op.inputs()) == 1:
        value = value.op.inputs()[0]
    return value


def _weight_dim(value: Value, ids: Tensor) -> list[tuple[str, int]] | str:
    labellings = [la for la in value.channels() if bool(torch.isin(la.labels, ids).any())]
    if len(labellings) != 1 or value.weight is None:
        return "a weight reads it along several dims at once"
    return [(value.weight, labellings[0].support[-1])]


def _users(trace: Trace) -> dict[str, list[Op]]:
    """The operators that touch the labels of each weight, however far from it."""
    owner = torch.full((trace.size,), -1)
    names = list(trace.weights)
    for index, name in enumerate(names):
        for labelling in trace.weights[name].labellings:
            owner[labelling.labels.reshape(-1)] = index
    users: dict[str, list[Op]] = {}
    seen: dict[int, list[int]] = {}
    for op in trace.ops:
        touched: set[int] = set()
        for labelling in (labelling for value in op.inputs() for labelling in value.channels()):
            key = id(labelling.labels)
            if key not in seen:
                seen[key] = owner[labelling.labels.reshape(-1)].unique().tolist()
            touched.update(seen[key])
        for index in touched - {-1}:
            users.setdefault(names[index], []).append(op)
    return users


def _first_seen(aligned: Tensor) -> tuple[Tensor, Tensor]:
    """Labels in order of appearance, and the first row each appears in."""
    seen: dict[int, int] = {}
    for row, labels in enumerate(aligned.tolist()):
        for label in labels:
            if label != FIXED:
                seen.setdefault(label, row)
    return torch.tensor(list(seen)), torch.tensor(list(seen.values()))


def _site(chosen: _Chosen, first: Side, number: dict[int, int]) -> Site | None:
    own = chosen.tapped
    if own.aligned.shape != first.aligned.shape:
        return None
    pairs = zip(own.aligned.reshape(-1).tolist(), first.aligned.reshape(-1).tolist(), strict=True)
    to_first = dict(pairs)
    folding = _folding(own)
    if folding is None:
        return None
    places: dict[int, list[int]] = {}
    for position, label in enumerate(folding[1].reshape(-1).tolist()):
        if label == FIXED:
            continue
        if to_first.get(label) not in number:
            return None
        places.setdefault(number[to_first[label]], []).append(position)
    lengths = {len(positions) for positions in places.values()}
    if len(places) != len(number) or len(lengths) != 1:
        return None
    table = torch.tensor([places[column] for column in range(len(number))]).T
    return Site(chosen.read.op, own.argument, own.dims, table, folding[0])


def _folding(side: Side) -> tuple[tuple[int, int] | None, Tensor] | None:
    """How to undo the merging of the batch into one of the dims, and the labels without it."""
    varying = [dim for dim in side.dims if dim in side.value.varying]
    if not varying:
        return None, side.labels
    axis = side.dims.index(varying[0])
    rows = side.labels.movedim(axis, 0)
    for length in range(1, len(rows)):
        if len(rows) % length == 0:
            once = rows[:length]
            if torch.equal(rows, once.repeat(len(rows) // length, *[1] * (rows.ndim - 1))):
                return (varying[0], length), once.movedim(0, axis)
    return None

"""What a network costs as a function of the widths of its spaces.

FLOPs follow `torch.utils.flop_counter`: two per multiply-add of linear layers, convolutions,
matrix products and attention, nothing for the rest. Every operator's cost is a product of dims, and
every dim is a sum of space widths, so the cost at any widths is arithmetic: no network is built.
Activation memory counts the output of every operator that makes new data, once, for the example.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import fx

from interpress.errors import ArgumentError
from interpress.graph.program import Program
from interpress.labels.trace import Trace, Value
from interpress.ops.registry import terms
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.membership import Membership

Size = tuple[tuple[int, tuple[int, ...]], ...]
"""A dim as a sum: how many elements, and the spaces whose shrinking takes a share of them."""


@dataclass(frozen=True)
class Cost:
    """FLOPs, parameters, and bytes of activations, for the example the model was captured with."""

    flops: int
    parameters: int
    activation_bytes: int


class CostModel:
    """The cost of a network at any widths of its spaces."""

    def __init__(
        self,
        program: Program,
        trace: Trace,
        spaces: Sequence[ChannelSpace],
        membership: Membership,
    ) -> None:
        self._program, self._trace = program, trace
        self._spaces, self._membership = spaces, membership
        self._number = {space.name: index for index, space in enumerate(spaces)}
        self._sizes: dict[tuple[int, int], Size] = {}
        self._lines: dict[bytes, Size] = {}

    def __call__(self, widths: Mapping[str, int] | None = None) -> Cost:
        """The cost with these spaces at these widths and all others whole."""
        shares = self.shares(widths or {})
        return Cost(
            flops=sum(self._evaluate(term, shares) for term in self._flops),
            parameters=self._fixed + sum(self._evaluate(term, shares) for term in self._weights),
            activation_bytes=sum(self._evaluate(term, shares) for term in self._activations),
        )

    def _index(self, name: str) -> int:
        if name not in self._number:
            raise ArgumentError(
                f"there is no space {name!r}; the spaces are {', '.join(self._number)}"
            )
        return self._number[name]

    def share(self, name: str) -> float:
        """The share of all FLOPs that depends on a space's width."""
        index = self._index(name)
        total = touched = 0
        for term in self._flops:
            cost = self._evaluate(term, {})
            total += cost
            touched += cost if any(index in s for size in term[1] for _, s in size) else 0
        return touched / total if total else 0.0

    def shrinkable_share(self) -> float:
        """The share of all FLOPs that depends on some space that can shrink."""
        free = {i for i, space in enumerate(self._spaces) if space.frozen is None}
        total = touched = 0
        for term in self._flops:
            cost = self._evaluate(term, {})
            total += cost
            touched += cost if any(free & set(s) for size in term[1] for _, s in size) else 0
        return touched / total if total else 0.0

    def largest_activation(self) -> int:
        """Bytes of the largest value an operator makes, for the example."""
        return max((self._evaluate(term, {}) for term in self._activations), default=0)

    def most_held(self) -> int:
        """Bytes of all values that are needed at one time, at most, for the example."""
        sizes: dict[fx.Node, int] = {}
        for op in self._trace.ops:
            sizes[op.node] = sum(math.prod(v.shape) * v.itemsize for v in op.outputs)
        released = self._program.released_after
        held = most = 0
        for node in self._program.nodes:
            held += sizes.get(node, 0)
            most = max(most, held)
            held -= sum(sizes.get(done, 0) for done in released.get(node, ()))
        return most

    def meter(self, resource: str) -> Meter:
        """A fast counter of FLOPs or parameters, for the search of widths."""
        terms = self._flops if resource == "flops" else self._weights
        fixed = 0 if resource == "flops" else self._fixed
        return Meter(self._spaces, terms, fixed)

    def length(
        self, value: Value, dim: int, shares: Mapping[int, Fraction]
    ) -> tuple[int, frozenset[int]]:
        """The length of a dim when spaces keep these shares, and the spaces along it."""
        size = self._size(value, dim)
        return _length(size, shares), frozenset(space for _, own in size for space in own)

    def shares(self, widths: Mapping[str, int]) -> dict[int, Fraction]:
        """The share that every named space keeps."""
        shares = {}
        for name, width in widths.items():
            index = self._index(name)
            space = self._spaces[index]
            if width not in space.widths():
                allowed = space.widths()
                why = f"; it is frozen: {space.frozen}" if space.frozen else ""
                raise ArgumentError(
                    f"space {name!r}: width {width} is not one of {allowed[0]} to {allowed[-1]} "
                    f"in steps of {space.step}{why}"
                )
            shares[index] = Fraction(width, space.size)
        return shares

    @staticmethod
    def _evaluate(term: tuple[int, tuple[Size, ...]], shares: Mapping[int, Fraction]) -> int:
        result = term[0]
        for size in term[1]:
            result *= _length(size, shares)
        return result

    @cached_property
    def _flops(self) -> list[tuple[int, tuple[Size, ...]]]:
        return [
            (factor, tuple(self._size(value, dim) for value, dim in dims))
            for op in self._trace.ops
            for factor, dims in terms(op)
        ]

    @cached_property
    def _weights(self) -> list[tuple[int, tuple[Size, ...]]]:
        named = {name for name, _ in self._program.model.named_parameters()}
        weights = self._trace.weights
        return [(1, self._all(value)) for name, value in weights.items() if name in named]

    @cached_property
    def _fixed(self) -> int:
        """Parameters that the graph never uses."""
        used = set(self._trace.weights)
        parameters = self._program.model.named_parameters()
        return sum(tensor.numel() for name, tensor in parameters if name not in used)

    @cached_property
    def _activations(self) -> list[tuple[int, tuple[Size, ...]]]:
        return [
            (value.itemsize, self._all(value))
            for op in self._trace.ops
            if not _is_view(op.node.target)
            for value in op.outputs
        ]

    def _all(self, value: Value) -> tuple[Size, ...]:
        return tuple(self._size(value, dim) for dim in range(len(value.shape)))

    def _size(self, value: Value, dim: int) -> Size:
        key = (id(value), dim)
        if key not in self._sizes:
            size = self._along(value, dim)
            if self._program.doubled and dim in value.varying:
                size = tuple((count // 2, spaces) for count, spaces in size)
            self._sizes[key] = size
        return self._sizes[key]

    def _along(self, value: Value, dim: int) -> Size:
        """A dim as a sum; many values have the same channels along one, and counting takes time."""
        line = _line(value, dim)
        if line is None:
            return ((value.shape[dim], ()),)
        key = line.numpy().tobytes()
        if key not in self._lines:
            self._lines[key] = _line_size(line, self._membership, self._spaces)
        return self._lines[key]


class Meter:
    """What a network costs at given widths, and what a change of one of them saves."""

    def __init__(
        self, spaces: Sequence[ChannelSpace], terms: list[tuple[int, tuple[Size, ...]]], fixed: int
    ) -> None:
        self._sizes = {space.name: space.size for space in spaces}
        self._number = {space.name: index for index, space in enumerate(spaces)}
        self._terms = terms
        self._fixed = fixed
        self._of: dict[str, list[int]] = {name: [] for name in self._sizes}
        self._near: dict[str, set[str]] = {name: {name} for name in self._sizes}
        names = list(self._sizes)
        for place, (_, sizes) in enumerate(terms):
            along = {names[space] for size in sizes for _, own in size for space in own}
            for name in along:
                self._of[name].append(place)
                self._near[name] |= along

    def total(self, widths: Mapping[str, int]) -> float:
        """The cost with these spaces at these widths and all others whole."""
        shares = self._shares(widths)
        return self._fixed + sum(self._value(term, shares) for term in self._terms)

    def saved(self, widths: Mapping[str, int], name: str, width: int) -> float:
        """How much less it costs with one space at another width."""
        before = self._shares({n: widths[n] for n in self._near[name] if n in widths})
        after = {**before, self._number[name]: width / self._sizes[name]}
        touched = [self._terms[place] for place in self._of[name]]
        return sum(self._value(term, before) - self._value(term, after) for term in touched)

    def touching(self, widths: Mapping[str, int], name: str) -> float:
        """What all operators that a space's width changes cost now: its makers and its readers."""
        shares = self._shares({n: widths[n] for n in self._near[name] if n in widths})
        return sum(self._value(self._terms[place], shares) for place in self._of[name])

    def neighbours(self, name: str) -> set[str]:
        """The spaces whose savings change with this one's width; itself among them."""
        return self._near[name]

    def _shares(self, widths: Mapping[str, int]) -> dict[int, float]:
        return {self._number[name]: width / self._sizes[name] for name, width in widths.items()}

    @staticmethod
    def _value(term: tuple[int, tuple[Size, ...]], shares: Mapping[int, float]) -> float:
        result = float(term[0])
        for size in term[1]:
            length = 0.0
            for count, spaces in size:
                part = float(count)
                for space in spaces:
                    part *= shares.get(space, 1.0)
                length += part
            result *= length
        return result


def _length(size: Size, shares: Mapping[int, Fraction]) -> int:
    if not any(space in shares for _, own in size for space in own):
        return sum(count for count, _ in size)
    total = Fraction(0)
    for count, spaces in size:
        part = Fraction(count)
        for space in spaces:
            part *= shares.get(space, 1)
        total += part
    return int(total)


def _is_view(target: object) -> bool:
    """Whether an operator returns a view of its input, or writes into it."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def _line(value: Value, dim: int) -> torch.Tensor | None:
    """The labels that one walk along a dim meets."""
    labellings = [labelling for labelling in value.labellings if dim in labelling.support]
    labelling = next(
        (la for la in labellings if not la.slab), labellings[0] if labellings else None
    )
    if labelling is None:
        return None
    return labelling.labels.movedim(dim, -1).reshape(-1, value.shape[dim])[0]


def _line_size(line: torch.Tensor, membership: Membership, spaces: Sequence[ChannelSpace]) -> Size:
    """The labels along a dim as a sum over spaces.

    A space shrinks a dim if the dim runs through several channels of one cell (or several heads);
    a dim that meets one channel of every cell, such as the heads of `(heads, head_dim)`, stays.
    """
    space, head = membership.space[line], membership.head_space[line]
    shrinks = {
        index: _runs_along(spaces[index].cells, membership.unit[line[space == index]])
        for index in space.unique().tolist()
        if index >= 0
    }
    several = {
        index: len(membership.head[line[head == index]].unique()) > 1
        for index in head.unique().tolist()
        if index >= 0
    }
    counts: dict[tuple[int, ...], int] = {}
    for (own, whole), count in Counter(zip(space.tolist(), head.tolist(), strict=True)).items():
        key = tuple(
            index for index, counted in ((own, shrinks), (whole, several)) if counted.get(index)
        )
        counts[key] = counts.get(key, 0) + count
    return tuple((count, key) for key, count in counts.items())


def _runs_along(cells: torch.Tensor, units: torch.Tensor) -> bool:
    """Whether some cell has more than one of its channels among these."""
    distinct = units.unique()
    return len(distinct) > len(cells[distinct].unique())

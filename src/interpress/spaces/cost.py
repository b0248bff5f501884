"""The cost of a network as a function of the widths of its channel spaces.

FLOPs are those of `torch.utils.flop_counter`: two per multiply-add of linear layers, convolutions,
matrix products and attention, and none for other operators. The cost of every operator is a
product of dims, and every dim is a sum of space widths. So the cost at any widths is computed by
arithmetic, without building a network. Activation memory counts the output of every operator that
allocates new memory, once, for the example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from torch import fx

from interpress.errors import ArgumentError
from interpress.graph.program import Program
from interpress.labels.trace import Trace, Value
from interpress.ops.registry import terms
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.dim_sizes import Size, dim_length, labels_along, length, size_of
from interpress.spaces.membership import Membership
from interpress.spaces.meter import CostTerm, Meter


@dataclass(frozen=True)
class Cost:
    """FLOPs, parameters, and bytes of activations, for the example the model was captured with."""

    flops: int
    parameters: int
    activation_bytes: int


@dataclass(frozen=True, eq=False)
class LayerSizes:
    """The number of outputs and inputs of a dense layer, as a function of widths."""

    outputs: Size
    channels: Size
    kernel: int
    """Number of kernel positions."""
    spaces: Mapping[int, ChannelSpace]
    """The spaces that the sizes depend on, by index."""

    def at(self, widths: Mapping[str, int]) -> tuple[float, float]:
        """Return outputs and inputs, kernel positions included, at these widths."""
        shares = {
            index: widths[space.name] / space.size
            for index, space in self.spaces.items()
            if space.name in widths
        }
        return dim_length(self.outputs, shares), self.kernel * dim_length(self.channels, shares)


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
        self._size_cache: dict[tuple[int, int], Size] = {}
        self._size_by_labels: dict[bytes, Size] = {}

    def __call__(self, widths: Mapping[str, int] | None = None) -> Cost:
        """Return the cost with the named spaces at these widths and all other spaces whole."""
        shares = self.shares(widths or {})
        return Cost(
            flops=sum(self._evaluate(term, shares) for term in self._flops),
            parameters=self._unused + sum(self._evaluate(term, shares) for term in self._weights),
            activation_bytes=sum(self._evaluate(term, shares) for term in self._activations),
        )

    def _index(self, name: str) -> int:
        if name not in self._number:
            raise ArgumentError(
                f"there is no space {name!r}; the spaces are {', '.join(self._number)}"
            )
        return self._number[name]

    def share(self, name: str) -> float:
        """Return the share of all FLOPs that depends on the width of a space."""
        return self._share_of({self._index(name)})

    def shrinkable_share(self) -> float:
        """Return the share of all FLOPs that depends on the width of some shrinkable space."""
        return self._share_of({i for i, s in enumerate(self._spaces) if s.frozen is None})

    def _share_of(self, spaces: set[int]) -> float:
        total = dependent = 0
        for cost, along in self._flop_parts():
            total += cost
            dependent += cost if spaces & along else 0
        return dependent / total if total else 0.0

    def fixed_flops(self) -> list[tuple[float, frozenset[int]]]:
        """Return the operators that depend on no shrinkable space.

        Each is given by its share of all FLOPs and the (frozen) spaces that it depends on.
        """
        parts = list(self._flop_parts())
        total = max(sum(flops for flops, _ in parts), 1)
        return [
            (flops / total, spaces)
            for flops, spaces in parts
            if all(self._spaces[space].frozen is not None for space in spaces)
        ]

    def _flop_parts(self) -> Iterator[tuple[int, frozenset[int]]]:
        """Yield parts of the FLOPs, and the numbers of the spaces that each depends on."""
        for term in self._flops:
            yield self._evaluate(term, {}), frozenset(n for s in term[1] for _, a in s for n in a)

    def largest_activation(self) -> int:
        """Return the bytes of the largest value that an operator allocates, for the example."""
        return max((self._evaluate(term, {}) for term in self._activations), default=0)

    def peak_bytes(self, widths: Mapping[str, int] | None = None) -> int:
        """Return the peak memory of a run on the example, in bytes of values still needed.

        A view counts like a copy.
        """
        shares = self.shares(widths or {})
        sizes: dict[fx.Node, int] = {}
        for op in self._trace.ops:
            sizes[op.node] = sum(
                self._evaluate((value.itemsize, self._all_sizes(value)), shares)
                for value in op.outputs
            )
        released = self._program.released_after
        held = peak = 0
        for node in self._program.nodes:
            held += sizes.get(node, 0)
            peak = max(peak, held)
            held -= sum(sizes.get(done, 0) for done in released.get(node, ()))
        return peak

    def layer_sizes(self, weight: str) -> LayerSizes:
        """Return the size of a dense layer's weight (out, in, *kernel) at any widths."""
        value = self._trace.weights[weight]
        outputs, channels = self._size(value, 0), self._size(value, 1)
        around = {index for _, along in (*outputs, *channels) for index in along}
        spaces = {index: self._spaces[index] for index in sorted(around)}
        return LayerSizes(outputs, channels, math.prod(value.shape[2:]), spaces)

    def meter(self, resource: str) -> Meter:
        """Return a fast counter of FLOPs (`"flops"`) or parameters (`"params"`)."""
        terms = self._flops if resource == "flops" else self._weights
        fixed = 0 if resource == "flops" else self._unused
        return Meter(self._spaces, terms, fixed)

    def length(
        self, value: Value, dim: int, shares: Mapping[int, Fraction]
    ) -> tuple[int, frozenset[int]]:
        """Return the length of a dim when spaces keep these shares, and the spaces in that dim."""
        size = self._size(value, dim)
        return length(size, shares), frozenset(space for _, spaces in size for space in spaces)

    def shares(self, widths: Mapping[str, int]) -> dict[int, Fraction]:
        """Return the share of its channels that each named space keeps, by the space's index."""
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
    def _evaluate(term: CostTerm, shares: Mapping[int, Fraction]) -> int:
        result = term[0]
        for size in term[1]:
            result *= length(size, shares)
        return result

    @cached_property
    def _flops(self) -> list[CostTerm]:
        return [
            (factor, tuple(self._size(value, dim) for value, dim in dims))
            for op in self._trace.ops
            for factor, dims in terms(op)
        ]

    @cached_property
    def _weights(self) -> list[CostTerm]:
        parameters = {name for name, _ in self._program.model.named_parameters()}
        weights = self._trace.weights
        return [
            (1, self._all_sizes(value)) for name, value in weights.items() if name in parameters
        ]

    @cached_property
    def _unused(self) -> int:
        """Number of parameters that the program does not use."""
        used = set(self._trace.weights)
        parameters = self._program.model.named_parameters()
        return sum(tensor.numel() for name, tensor in parameters if name not in used)

    @cached_property
    def _activations(self) -> list[CostTerm]:
        return [
            (value.itemsize, self._all_sizes(value))
            for op in self._trace.ops
            if not _is_view(op.node.target)
            for value in op.outputs
        ]

    def _all_sizes(self, value: Value) -> tuple[Size, ...]:
        return tuple(self._size(value, dim) for dim in range(len(value.shape)))

    def _size(self, value: Value, dim: int) -> Size:
        """Return a dim as a sum over spaces; a batch doubled for capture is counted once."""
        key = (id(value), dim)
        if key not in self._size_cache:
            size = self._uncached_size(value, dim)
            if self._program.doubled and dim in value.varying:
                size = tuple((count // 2, spaces) for count, spaces in size)
            self._size_cache[key] = size
        return self._size_cache[key]

    def _uncached_size(self, value: Value, dim: int) -> Size:
        labels = labels_along(value, dim)
        if labels is None:
            return ((value.shape[dim], ()),)
        key = labels.numpy().tobytes()  # many values have the same labels along a dim
        if key not in self._size_by_labels:
            self._size_by_labels[key] = size_of(labels, self._membership, self._spaces)
        return self._size_by_labels[key]


def _is_view(target: object) -> bool:
    """Return whether an operator returns a view of its input, or writes into it."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)

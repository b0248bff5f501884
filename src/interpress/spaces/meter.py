"""Counts FLOPs or parameters along a path of widths, where only a few of them change at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.dim_sizes import Size, dim_length

CostTerm = tuple[int, tuple[Size, ...]]
"""A part of the cost: a constant factor, and the dims to multiply it by."""


class Meter:
    """The cost of a network at any widths, and the saving from a change of one width.

    It computes in floating point, and evaluates only the terms that a change affects.
    """

    def __init__(self, spaces: Sequence[ChannelSpace], terms: list[CostTerm], fixed: int) -> None:
        self._sizes = {space.name: space.size for space in spaces}
        self._number = {space.name: index for index, space in enumerate(spaces)}
        self._terms = terms
        self._fixed = fixed
        self._spaces_of = [
            tuple({space for size in sizes for _, along in size for space in along})
            for _, sizes in terms
        ]
        self._known: dict[tuple[int, tuple[float, ...]], float] = {}
        self._terms_of: dict[str, list[int]] = {name: [] for name in self._sizes}
        self._neighbours: dict[str, set[str]] = {name: {name} for name in self._sizes}
        self._latest: tuple[dict[str, int], list[float]] = (
            {}, [self._value(index, {}) for index in range(len(terms))]
        )  # fmt: skip
        """The widths that `total` was last asked for, and the value of every term at these."""
        names = list(self._sizes)
        for index, in_spaces in enumerate(self._spaces_of):
            in_term = {names[space] for space in in_spaces}
            for name in in_term:
                self._terms_of[name].append(index)
                self._neighbours[name] |= in_term

    def total(self, widths: Mapping[str, int]) -> float:
        """Return the cost with the named spaces at these widths and all other spaces whole."""
        before, values = self._latest
        changed = {n for n in {**before, **widths} if before.get(n) != widths.get(n)}
        if changed:
            shares = self._shares(widths)
            values = list(values)
            for index in {index for name in changed for index in self._terms_of[name]}:
                values[index] = self._value(index, shares)
            self._latest = dict(widths), values
        return self._fixed + sum(values)

    def saved(self, widths: Mapping[str, int], name: str, width: int) -> float:
        """Return how much the cost falls if one space changes from its width to `width`."""
        (saving,) = self.savings(widths, name, [width])
        return saving

    def savings(self, widths: Mapping[str, int], name: str, others: Sequence[int]) -> list[float]:
        """Return how much the cost falls for every width that one space may change to."""
        shares = self._shares({n: widths[n] for n in self._neighbours[name] if n in widths})
        affected, number = self._terms_of[name], self._number[name]
        before = [self._value(index, shares) for index in affected]
        savings = []
        for width in others:
            shares[number] = width / self._sizes[name]
            values = zip(before, affected, strict=True)
            savings.append(sum(value - self._value(index, shares) for value, index in values))
        return savings

    def dependent_cost(self, widths: Mapping[str, int], name: str) -> float:
        """Return the cost of all operators that depend on a space: its producers and consumers."""
        shares = self._shares({n: widths[n] for n in self._neighbours[name] if n in widths})
        return sum(self._value(index, shares) for index in self._terms_of[name])

    def neighbours(self, name: str) -> set[str]:
        """Return the spaces whose savings depend on this space's width, itself included."""
        return self._neighbours[name]

    def _shares(self, widths: Mapping[str, int]) -> dict[int, float]:
        return {self._number[name]: width / self._sizes[name] for name, width in widths.items()}

    def _value(self, index: int, shares: Mapping[int, float]) -> float:
        """Return the value of a term; greedy paths ask for the same ones again and again."""
        key = index, tuple([shares.get(space, 1.0) for space in self._spaces_of[index]])
        if key not in self._known:
            self._known[key] = self._computed(self._terms[index], shares)
        return self._known[key]

    @staticmethod
    def _computed(term: CostTerm, shares: Mapping[int, float]) -> float:
        result = float(term[0])
        for size in term[1]:
            result *= dim_length(size, shares)
        return result

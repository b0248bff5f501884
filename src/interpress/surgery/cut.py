"""A checked plan of surgery: the kept channels of every space, and `T` per tap."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.labels.labelling import Labelling
from interpress.linalg.precision import exact_dtype
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Absorber, Tap

Kept = Mapping[str, Tensor | Sequence[int]]
"""Per space, the channels to keep: ascending indices, or a mask."""
Interpolations = Mapping[str, Tensor]
"""Per tap, its `T` of shape (kept columns, all columns)."""


_KEPT_BYTES = 2**30
"""Bytes of computed weights that a cut keeps."""


class Cut:
    """The kept channels of every space and `T` per tap, and what follows for labels and weights."""

    def __init__(self, spaces: Spaces, kept: Kept, T: Interpolations | None = None) -> None:
        self.spaces = spaces
        self.kept = {name: spaces[name].check(index) for name, index in kept.items()}
        self._unordered = {
            name
            for name, index in kept.items()
            if (values := torch.as_tensor(index).cpu()).dtype != torch.bool
            and not torch.equal(values.reshape(-1), self.kept[name])
        }
        self.masks: dict[int, Tensor] = {}
        for name, index in self.kept.items():
            space = spaces[name]
            mask = torch.zeros(space.size, dtype=torch.bool)
            mask[index] = True
            self.masks[spaces.index(space)] = mask
        self.T = {name: self._checked(name, matrix) for name, matrix in (T or {}).items()}

    def with_interpolations(self, T: Interpolations) -> Cut:
        """Return the same kept channels with other interpolations."""
        other = copy.copy(self)
        vars(other).pop("weights", None)  # computed from T
        other.T = {name: other._checked(name, matrix) for name, matrix in T.items()}
        return other

    def stays(self, labels: Tensor) -> Tensor:
        """Return whether each label is kept."""
        return self._stays[labels]

    @cached_property
    def _stays(self) -> Tensor:
        return self.spaces.membership.kept(self.masks)

    def columns(self, tap: Tap) -> Tensor:
        """Return the kept columns of a tap."""
        return torch.nonzero(self.stays(tap.labels)).reshape(-1)

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """The parameters and buffers that change, by name, not yet rounded to their dtype.

        They are computed when they are looked up. Those of a large network are not kept.
        """
        return _ChangedWeights(self)

    def width_gain(self, tap: Tap) -> float:
        """Return the correction for a consumer that divides by the square root of its own width.

        It is `sqrt(new width / old width)`, or 1 for all other consumers.
        """
        if not (tap.scaled_by_width or tap.name in self.spaces.rescaled):
            return 1.0
        stays = self.stays(tap.labels)
        groups = tap.groups[stays].unique()
        before = int((tap.groups == groups[0]).sum())
        return float((int((tap.groups[stays] == groups[0]).sum()) / before) ** 0.5)

    def _checked(self, name: str, matrix: Tensor) -> Tensor:
        """Return a `T` unchanged, or raise an error if it does not fit its tap."""
        if name not in self.spaces.taps:
            known = ", ".join(repr(tap) for tap in self.spaces.taps)
            raise ArgumentError(f"there is no tap {name!r}; the taps are {known}")
        tap = self.spaces.taps[name]
        self._check_order(tap)
        expected = (len(self.columns(tap)), tap.size)
        if tuple(matrix.shape) != expected:
            raise ArgumentError(
                f"tap {name!r}: T has shape {tuple(matrix.shape)}, but {expected[0]} of {tap.size} "
                f"channels are kept there; pass a T of shape {expected}"
            )
        if expected[0] == tap.size:
            raise ArgumentError(
                f"tap {name!r} keeps all its channels, so T would have no effect; leave it out of T"
            )
        if not bool(torch.isfinite(matrix).all()):
            raise ArgumentError(f"tap {name!r}: T holds NaN or Inf; compute it from finite data")
        groups = tap.groups.to(matrix.device)
        different = groups[self.columns(tap).to(matrix.device)][:, None] != groups[None, :]
        if bool(different.any()) and bool((matrix[different] != 0).any()):
            raise ArgumentError(
                f"tap {name!r}: T mixes channels of different groups, which the consumer does not "
                "sum; set these entries of T to zero"
            )
        return matrix

    def _check_order(self, tap: Tap) -> None:
        for index in self.spaces.membership.spaces_in(tap.labels):
            space = self.spaces[index]
            if space.name in self._unordered:
                raise ArgumentError(
                    f"space {space.name!r}: kept is not in ascending order, but the rows of T must "
                    "be; sort both: order = kept.argsort(), then pass kept[order] and T[order]"
                )


def shrunk_shapes(cut: Cut) -> dict[str, tuple[int, ...]]:
    """Return the shapes that weights will have, without computing the weights."""
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


class _ChangedWeights(Mapping[str, Tensor]):
    """All parameters and buffers that lose entries or absorb `T`."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._original = cut.spaces.program.parameters()
        self._absorbers: dict[str, list[tuple[Tap, Absorber]]] = {}
        for tap in cut.spaces.taps.values():
            for absorber in tap.absorbers:
                self._absorbers.setdefault(absorber.weight, []).append((tap, absorber))
        self._names = [
            name
            for name, value in cut.spaces.trace.weights.items()
            if not all(bool(cut.stays(labelling.labels).all()) for labelling in value.channels())
        ]
        self._kept: dict[str, Tensor] = {}
        self._bytes = 0

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._kept:
            if name not in self._names:
                raise KeyError(name)
            weight = self._computed(name)
            size = weight.numel() * weight.element_size()
            if self._bytes + size > _KEPT_BYTES:
                return weight
            self._bytes += size
            self._kept[name] = weight
        return self._kept[name]

    def _computed(self, name: str) -> Tensor:
        cut = self._cut
        weight = self._original[name].to(cut.spaces.program.example.device)
        labellings = cut.spaces.trace.weights[name].channels()
        for labelling in sorted(labellings, key=lambda labelling: -len(labelling.support)):
            stays = cut.stays(labelling.labels)
            if bool(stays.all()):
                continue
            along_dim = [
                (tap, absorber)
                for tap, absorber in self._absorbers.get(name, [])
                if absorber.dim == labelling.support[-1]
            ]
            weight = _reduced(weight, labelling, stays, along_dim, cut)
        return weight.contiguous()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _reduced(
    weight: Tensor,
    labelling: Labelling,
    stays: Tensor,
    absorbers: list[tuple[Tap, Absorber]],
    cut: Cut,
) -> Tensor:
    """Return the weight without the removed labels of one labelling: selected, or absorbed."""
    if len(labelling.support) == 2:
        return _reduced_in_groups(weight, stays, absorbers, cut)
    dim = labelling.support[0]
    kept_index = torch.nonzero(stays.reshape(-1)).reshape(-1)
    result = weight.index_select(dim, kept_index.to(weight.device))
    for tap, absorber in absorbers:
        if tap.name in cut.T or cut.width_gain(tap) != 1.0:
            result = _absorbed(weight, result, kept_index, (tap, absorber), cut)
    return result


def _absorbed(
    weight: Tensor, result: Tensor, kept_index: Tensor, pair: tuple[Tap, Absorber], cut: Cut
) -> Tensor:
    """Return `result` with `W @ T.T` in the entries that read the tap.

    `result` is the weight with only `kept_index` left along the absorber's dim.
    """
    tap, absorber = pair
    dim = absorber.dim
    T, kept = _matrix(tap, cut, weight)
    index_of = _index_table(absorber.column, absorber.repeat, tap.size)  # (repeats, n)
    new_index = torch.full((len(absorber.column),), -1)
    new_index[kept_index] = torch.arange(len(kept_index))
    moved = weight.movedim(dim, 0).to(T.dtype)
    W = moved[index_of.to(weight.device)]  # (repeats, n, ...)
    mixed = torch.einsum("kn,rn...->rk...", T * cut.width_gain(tap), W)
    target = new_index[index_of[:, kept]]
    valid = (target >= 0).reshape(-1)  # entries of a removed head no longer exist
    out = result.to(T.dtype).movedim(dim, 0).clone()
    out[target.reshape(-1)[valid].to(weight.device)] = mixed.reshape(-1, *mixed.shape[2:])[
        valid.to(weight.device)
    ]
    return out.movedim(0, dim)


def _reduced_in_groups(
    weight: Tensor, stays: Tensor, absorbers: list[tuple[Tap, Absorber]], cut: Cut
) -> Tensor:
    """Reduce dim 1 of a grouped convolution's weight, where every group has its own channels."""
    rows = stays.reshape(stays.shape[0], stays.shape[1])
    index = torch.nonzero(rows)[:, 1].reshape(len(rows), -1).to(weight.device)
    for tap, absorber in absorbers:
        if tap.name not in cut.T:
            continue
        T, kept = _matrix(tap, cut, weight)
        groups = len(absorber.column)
        per_group = len(rows) // groups
        blocks = weight.reshape(groups, per_group, *weight.shape[1:]).to(T.dtype)
        mixed = []
        for block, columns in zip(blocks, absorber.column, strict=True):
            group_T = T[torch.isin(kept, columns)][:, columns]  # (k, n) of this group
            mixed.append(torch.einsum("kn,on...->ok...", group_T, block))
        return torch.cat(mixed)
    expanded = index.reshape(*index.shape, *(1,) * (weight.ndim - 2))
    return weight.gather(1, expanded.expand(*index.shape, *weight.shape[2:]))


def _matrix(tap: Tap, cut: Cut, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return `T` (k, n) in full precision on the weight's device, and the kept columns.

    Without a `T`, the kept columns are read as they are: `T` is rows of the identity.
    """
    kept = cut.columns(tap)
    dtype = exact_dtype(weight.device)
    if tap.name in cut.T:
        return cut.T[tap.name].to(weight.device, dtype), kept
    return torch.eye(tap.size, dtype=dtype, device=weight.device)[kept], kept


def _index_table(column: Tensor, repeat: Tensor, size: int) -> Tensor:
    """Return the index that reads each column in each repeat: (repeats, columns)."""
    reads = column >= 0
    table = torch.zeros(int(repeat[reads].max()) + 1, size, dtype=torch.long)
    table[repeat[reads], column[reads]] = torch.nonzero(reads).reshape(-1)
    return table

"""Operators that cut, join, repeat, pad or reorder data: the labels are moved likewise."""

from __future__ import annotations

from typing import Any

import torch

from interpress.labels.labelling import Labellings, tidy
from interpress.labels.movement import cut, join, take, view
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


@rule("aten.slice", "aten.narrow", linear=True)
def slice_(op: Op) -> Labellings:
    """A stretch of one dim."""
    value, dim = op["self"], op["dim"]
    size = value.shape[dim]
    start = op.get("start") or 0
    stop = op["start"] + op["length"] if op.family == "aten.narrow" else op.get("end")
    start, stop, step = slice(start, stop, op.get("step") or 1).indices(size)
    if step != 1:
        return tidy(
            [
                labelling.moved(_every(labelling.labels, dim, start, stop, step))
                for labelling in _unmixed(op, value, dim)
            ]
        )
    return cut(op, value, dim, start, max(start, stop))


def _every(labels: torch.Tensor, dim: int, start: int, stop: int, step: int) -> torch.Tensor:
    if labels.shape[dim] == 1:
        return labels
    return labels.index_select(dim, torch.arange(start, stop, step))


def _unmixed(op: Op, value: Value, dim: int) -> Labellings:
    return without(mix(op, value, [dim], "takes every other member of it"), [dim], len(value.shape))


@rule("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split", linear=True)
def split(op: Op) -> list[Labellings]:
    """Consecutive pieces of one dim."""
    value, dim = op.inputs()[0], op["dim"]
    size = value.shape[dim]
    pieces: Any = op.get("split_size", op.get("split_sizes"))
    if op.family == "aten.chunk":
        pieces = -(-size // op["chunks"])
    elif op.family == "aten.tensor_split":
        example = torch.empty(size, device="meta")
        by: Any = op.get("sections", op.get("indices"))
        pieces = [len(piece) for piece in torch.tensor_split(example, by)]
    if isinstance(pieces, int):
        pieces = [min(pieces, size - start) for start in range(0, size, pieces)]
    starts = [sum(pieces[:index]) for index in range(len(pieces))]
    return [cut(op, value, dim, s, s + n) for s, n in zip(starts, pieces, strict=True)]


@rule("aten.unbind", linear=True)
def unbind(op: Op) -> list[Labellings]:
    """Every index of a dim by itself."""
    value, dim = op["self"], op["dim"]
    return [take(op, value, dim, index) for index in range(value.shape[dim])]


@rule("aten.select", linear=True)
def select(op: Op) -> Labellings:
    """One index of a dim."""
    value, dim = op["self"], op["dim"]
    return take(op, value, dim, op["index"] % value.shape[dim])


@rule("aten.cat", "aten.concat", "aten.concatenate", linear=True)
def cat(op: Op) -> Labellings:
    """Values one after the other."""
    values = [value for value in op.inputs() if value.shape != (0,)]
    dim = op.get("dim", 0) % len(values[0].shape)
    op.linear = not any(
        labelling.labels.shape[dim] > 1 for v in values for labelling in v.labellings
    )
    return join(op, values, dim)


@rule("aten.hstack", "aten.vstack", linear=True)
def side_by_side(op: Op) -> Labellings:
    """Values one after the other along dim 1, or dim 0."""
    values = op.inputs()
    dim = 1 if op.family == "aten.hstack" and len(values[0].shape) > 1 else 0
    op.linear = not any(
        labelling.labels.shape[dim] > 1 for v in values for labelling in v.labellings
    )
    return join(op, values, dim)


@rule("aten.stack", linear=True)
def stack(op: Op) -> Labellings:
    """Values along a new dim."""
    values = op.inputs()
    dim = op["dim"] % (len(values[0].shape) + 1)
    labellings = align(op, *values).labellings
    return tidy([labelling.moved(labelling.labels.unsqueeze(dim)) for labelling in labellings])


@rule("aten.pad", "aten.constant_pad_nd", linear=True)
def pad(op: Op) -> Labellings:
    """Elements added around; along channels these are new ones that are constant."""
    value, amounts = op["self"], op["pad"]
    ndim = len(value.shape)
    padded = {ndim - 1 - i // 2: (amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)}
    padded = {dim: pair for dim, pair in padded.items() if pair != (0, 0)}
    along = {dim for labelling in value.labellings for dim in labelling.support} & set(padded)
    op.linear = not along
    if along and (
        op.get("mode", "constant") != "constant" or min(min(padded[d]) for d in along) < 0
    ):
        mixed = mix(op, value, along, "pads it with other channels")
        value = Value(value.shape, without(mixed, along, ndim))
    labellings = []
    for labelling in value.labellings:
        labels = labelling.labels
        for dim in set(labelling.support) & set(padded):
            sizes = [[*labels.shape[:dim], n, *labels.shape[dim + 1 :]] for n in padded[dim]]
            before, after = (op.trace.fresh(_count(s)).reshape(s) for s in sizes)
            labels = torch.cat([before, labels, after], dim)
        labellings.append(labelling.moved(labels))
    return tidy(labellings)


def _count(sizes: list[int]) -> int:
    return torch.Size(sizes).numel()


@rule("aten.repeat", "aten.tile", linear=True)
def repeat(op: Op) -> Labellings:
    """The whole value several times along some dims."""
    value = op["self"]
    times = list(op.get("repeats", op.get("dims")))
    ndim = max(len(times), len(value.shape))
    times = [1] * (ndim - len(times)) + times
    labellings = []
    for labelling in value.labellings:
        labels = labelling.labels.reshape(
            (1,) * (ndim - labelling.labels.ndim) + tuple(labelling.labels.shape)
        )
        labellings.append(
            labelling.moved(
                labels.repeat([t if n > 1 else 1 for t, n in zip(times, labels.shape, strict=True)])
            )
        )
    return tidy(labellings)


@rule("aten.repeat_interleave", linear=True)
def repeat_interleave(op: Op) -> Labellings:
    """Every index of a dim several times in a row."""
    value, repeats, dim = op.inputs()[0], op.get("repeats"), op.get("dim")
    if not isinstance(repeats, int) or dim is None:
        mix(op, value, range(len(value.shape)), "repeats it by a tensor of counts")
        return ()
    moved = [
        labelling.moved(
            labelling.labels.repeat_interleave(
                repeats if labelling.labels.shape[dim] > 1 else 1, dim
            )
        )
        for labelling in value.labellings
    ]
    return tidy(moved)


@rule("aten.flip", linear=True)
def flip(op: Op) -> Labellings:
    """Dims in reverse."""
    return tidy(
        [labelling.moved(labelling.labels.flip(op["dims"])) for labelling in op["self"].labellings]
    )


@rule("aten.roll", linear=True)
def roll(op: Op) -> Labellings:
    """Elements shifted around a dim; along channels by a fixed number, which would not shrink."""
    value = op["self"]
    dims = op["dims"] or range(len(value.shape))
    mixed = mix(op, value, dims, "shifts it by a fixed number of channels")
    return without(mixed, dims, len(value.shape))


@rule("aten.pixel_shuffle", linear=True)
def pixel_shuffle(op: Op) -> Labellings:
    """Channels to space: `(C r r, H, W)` to `(C, H r, W r)`."""
    value, r = op["self"], op["upscale_factor"]
    *lead, c, h, w = value.shape
    n = len(lead)
    split_layers = view(op, value, (*lead, c // (r * r), r, r, h, w))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    moved = tuple(labelling.moved(labelling.labels.permute(order)) for labelling in split_layers)
    return view(
        op, Value((*lead, c // (r * r), h, r, w, r), moved), (*lead, c // (r * r), h * r, w * r)
    )


@rule("aten.pixel_unshuffle", linear=True)
def pixel_unshuffle(op: Op) -> Labellings:
    """Space to channels: `(C, H r, W r)` to `(C r r, H, W)`."""
    value, r = op["self"], op["downscale_factor"]
    *lead, c, h, w = value.shape
    n = len(lead)
    h, w = h // r, w // r
    split_layers = view(op, value, (*lead, c, h, r, w, r))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    moved = tuple(labelling.moved(labelling.labels.permute(order)) for labelling in split_layers)
    return view(op, Value((*lead, c, r, r, h, w), moved), (*lead, c * r * r, h, w))


@rule("aten.channel_shuffle", "aten.native_channel_shuffle", linear=True)
def channel_shuffle(op: Op) -> Labellings:
    """Channels `(g, C / g)` become `(C / g, g)`."""
    value, groups = op.inputs()[0], op["groups"]
    b, c, *space = value.shape
    split_layers = view(op, value, (b, groups, c // groups, *space))
    moved = tuple(labelling.moved(labelling.labels.transpose(1, 2)) for labelling in split_layers)
    return view(op, Value((b, c // groups, groups, *space), moved), value.shape)


@rule("aten.glu")
def glu(op: Op) -> Labellings:
    """The first half of a dim times the sigmoid of the second."""
    value, dim = op["self"], op["dim"]
    half = value.shape[dim] // 2
    shape = [half if d == dim % len(value.shape) else size for d, size in enumerate(value.shape)]
    halves = [Value(tuple(shape), cut(op, value, dim, s, s + half)) for s in (0, half)]
    return align(op, *halves).labellings

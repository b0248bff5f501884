"""Operators that cut, join, repeat, pad or reorder data; they move the labels in the same way."""

from __future__ import annotations

import math
from typing import Any

import torch

from interpress.labels.copies import counting, may_be_groups, repeated
from interpress.labels.labelling import Labelling, Labellings, along, tidy
from interpress.labels.movement import cut, interleave, join, take, view
from interpress.labels.relations import align, mix, uniform, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


@rule("aten.slice", "aten.narrow", linear=True)
def slice_(op: Op) -> Labellings:
    """Follow a slice of one dim."""
    value, dim = op["self"], op["dim"]
    size = value.shape[dim]
    start = op.get("start") or 0
    stop = op["start"] + op["length"] if op.family == "aten.narrow" else op.get("end")
    start, stop, step = slice(start, stop, op.get("step") or 1).indices(size)
    if step != 1:
        mixed = mix(op, value, [dim], "takes every n-th of its channels (a slice with a step)")
        return tidy(without(mixed, [dim], len(value.shape)))
    return cut(op, value, dim, start, max(start, stop))


@rule("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split", linear=True)
def split(op: Op) -> list[Labellings]:
    """Follow consecutive pieces of one dim."""
    value, dim = op.inputs()[0], op["dim"]
    size = value.shape[dim]
    lengths: Any = op.get("split_size", op.get("split_sizes"))
    if op.family == "aten.chunk":
        lengths = -(-size // op["chunks"])
    elif op.family == "aten.tensor_split":
        example = torch.empty(size, device="meta")
        sections: Any = op.get("sections", op.get("indices"))
        lengths = [len(piece) for piece in torch.tensor_split(example, sections)]
    if isinstance(lengths, int):
        lengths = [min(lengths, size - start) for start in range(0, size, lengths)]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    equal = len(set(lengths)) == 1
    return [
        cut(op, value, dim, start, start + length, equal=equal)
        for start, length in zip(starts, lengths, strict=True)
    ]


@rule("aten.unbind", linear=True)
def unbind(op: Op) -> list[Labellings]:
    """Follow every index of a dim separately."""
    value, dim = op["self"], op["dim"]
    return [take(op, value, dim, index) for index in range(value.shape[dim])]


@rule("aten.select", linear=True)
def select(op: Op) -> Labellings:
    """Follow one index of a dim."""
    value, dim = op["self"], op["dim"]
    return take(op, value, dim, op["index"] % value.shape[dim])


@rule("aten.cat", "aten.concat", "aten.concatenate", linear=True)
def cat(op: Op) -> Labellings:
    """Follow values concatenated along a dim."""
    values = [value for value in op.inputs() if value.shape != (0,)]
    return _concatenated(op, values, op.get("dim", 0) % len(values[0].shape))


@rule("aten.hstack", "aten.vstack", linear=True)
def side_by_side(op: Op) -> Labellings:
    """Follow values concatenated along dim 1 (`hstack`) or dim 0 (`vstack`)."""
    values = op.inputs()
    dim = 1 if op.family == "aten.hstack" and len(values[0].shape) > 1 else 0
    return _concatenated(op, values, dim)


def _concatenated(op: Op, values: list[Value], dim: int) -> Labellings:
    """Join the values; along a dim with channels this does not commute with mixing them."""
    op.linear = not any(
        labelling.labels.shape[dim] > 1 for value in values for labelling in value.labellings
    )
    return join(op, values, dim)


@rule("aten.stack", linear=True)
def stack(op: Op) -> Labellings:
    """Follow values stacked along a new dim."""
    values = op.inputs()
    dim = op["dim"] % (len(values[0].shape) + 1)
    labellings = align(op, *values).labellings
    return tidy([labelling.moved(labelling.labels.unsqueeze(dim)) for labelling in labellings])


@rule("aten.pad", "aten.constant_pad_nd", linear=True)
def pad(op: Op) -> Labellings:
    """Follow padding; padding a channel dim with a constant adds channels with fresh labels."""
    value, amounts = op["self"], op["pad"]
    ndim = len(value.shape)
    padded = {ndim - 1 - i // 2: (amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)}
    padded = {dim: pair for dim, pair in padded.items() if pair != (0, 0)}
    channel_dims = {dim for la in value.labellings for dim in la.support} & set(padded)
    mode = op.get("mode", "constant")
    adds_constant = mode == "constant" and bool(op.get("value"))
    op.linear = not channel_dims and not adds_constant
    if channel_dims and (mode != "constant" or min(min(padded[d]) for d in channel_dims) < 0):
        mixed = mix(op, value, channel_dims, "pads its channels with other channels, or crops them")
        value = Value(value.shape, without(mixed, channel_dims, ndim))
    return tidy([_padded(op, labelling, padded) for labelling in value.labellings])


def _padded(op: Op, labelling: Labelling, padded: dict[int, tuple[int, int]]) -> Labelling:
    """Return the labelling with fresh labels before and after every padded dim it varies along."""
    labels = labelling.labels
    for dim in set(labelling.support) & set(padded):
        shapes = [
            torch.Size([*labels.shape[:dim], amount, *labels.shape[dim + 1 :]])
            for amount in padded[dim]
        ]
        before, after = (op.trace.fresh(shape.numel()).reshape(shape) for shape in shapes)
        labels = torch.cat([before, labels, after], dim)
    return labelling.moved(labels)


@rule("aten.repeat", "aten.tile", linear=True)
def repeat(op: Op) -> Labellings:
    """Follow a value that is repeated as a whole along some dims."""
    value = op["self"]
    repeats = list(op.get("repeats", op.get("dims")))
    ndim = max(len(repeats), len(value.shape))
    repeats = [1] * (ndim - len(repeats)) + repeats
    labellings = []
    for labelling in value.labellings:
        labels = along(labelling.labels, ndim)
        sizes = zip(repeats, labels.shape, strict=True)
        labels = labels.repeat([times if size > 1 else 1 for times, size in sizes])
        labellings.append(labelling.moved(labels))
    return tidy(labellings)


@rule("aten.repeat_interleave", linear=True)
def repeat_interleave(op: Op) -> Labellings:
    """Follow a value in which every index of a dim is repeated several times in a row."""
    value, repeats, dim = op.inputs()[0], op.get("repeats"), op.get("dim")
    if not isinstance(repeats, int) or dim is None:
        why = "repeats its channels by a tensor of counts; use an integer count and give `dim`"
        mix(op, value, range(len(value.shape)), why)
        return ()
    dim %= len(value.shape)
    if repeats > 1 and dim > 0 and may_be_groups(value, dim):
        places = counting(op, 1, 0, repeats)
        op.implied.append(Value((repeats,), (places,)))
        return tidy(repeated(op, value, dim, places)[0].labellings)
    return tidy([interleave(labelling, repeats, dim) for labelling in value.labellings])


@rule("aten.flip", linear=True)
def flip(op: Op) -> Labellings:
    """Follow a value with some dims reversed."""
    return tidy(
        [labelling.moved(labelling.labels.flip(op["dims"])) for labelling in op["self"].labellings]
    )


@rule("aten.roll", linear=True)
def roll(op: Op) -> Labellings:
    """Freeze channels along the shifted dims, because the length of the shift does not shrink."""
    value = op["self"]
    dims = op["dims"] or range(len(value.shape))
    mixed = mix(op, value, dims, "shifts its channels by a fixed number")
    return without(mixed, dims, len(value.shape))


@rule("aten.unfold", linear=True)
def unfold(op: Op) -> Labellings:
    """Follow windows of one dim, which become a new last dim; channels along that dim freeze."""
    value, dim = op["self"], op["dimension"]
    why = "takes windows of its channels; unfold a dim without channels, such as space or time"
    labellings = without(mix(op, value, [dim], why), [dim], len(value.shape))
    return tidy([labelling.moved(labelling.labels.unsqueeze(-1)) for labelling in labellings])


@rule("aten.im2col", linear=True)
def im2col(op: Op) -> Labellings:
    """Follow image patches: `(N, C, H, W)` becomes `(N, C kh kw, L)`.

    Every channel becomes a block of `kh kw` kernel positions, so its label is repeated.
    """
    value = op["self"]
    channel_dim = len(value.shape) - 3  # the batch dim is optional
    positions = math.prod(op["kernel_size"])
    return tidy(
        [
            interleave(labelling.moved(labelling.labels.squeeze(-1)), positions, channel_dim)
            for labelling in uniform(op, value, [-2, -1])
        ]
    )


@rule("aten.pixel_shuffle", linear=True)
def pixel_shuffle(op: Op) -> Labellings:
    """Follow channels moved to space: `(C r r, H, W)` becomes `(C, H r, W r)`."""
    value, r = op["self"], op["upscale_factor"]
    *lead, c, h, w = value.shape
    n = len(lead)
    split_labellings = view(op, value, (*lead, c // (r * r), r, r, h, w))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    moved = tuple(
        labelling.moved(labelling.labels.permute(order)) for labelling in split_labellings
    )
    return view(
        op, Value((*lead, c // (r * r), h, r, w, r), moved), (*lead, c // (r * r), h * r, w * r)
    )


@rule("aten.pixel_unshuffle", linear=True)
def pixel_unshuffle(op: Op) -> Labellings:
    """Follow space moved to channels: `(C, H r, W r)` becomes `(C r r, H, W)`."""
    value, r = op["self"], op["downscale_factor"]
    *lead, c, h, w = value.shape
    n = len(lead)
    h, w = h // r, w // r
    split_labellings = view(op, value, (*lead, c, h, r, w, r))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    moved = tuple(
        labelling.moved(labelling.labels.permute(order)) for labelling in split_labellings
    )
    return view(op, Value((*lead, c, r, r, h, w), moved), (*lead, c * r * r, h, w))


@rule("aten.channel_shuffle", "aten.native_channel_shuffle", linear=True)
def channel_shuffle(op: Op) -> Labellings:
    """Follow channels `(g, C / g)` that become `(C / g, g)`."""
    value, groups = op.inputs()[0], op["groups"]
    b, c, *space = value.shape
    split_labellings = view(op, value, (b, groups, c // groups, *space))
    moved = tuple(
        labelling.moved(labelling.labels.transpose(1, 2)) for labelling in split_labellings
    )
    return view(op, Value((b, c // groups, groups, *space), moved), value.shape)


@rule("aten.glu")
def glu(op: Op) -> Labellings:
    """Follow the first half of a dim times the sigmoid of the second half."""
    value, dim = op["self"], op["dim"]
    half = value.shape[dim] // 2
    shape = [half if d == dim % len(value.shape) else size for d, size in enumerate(value.shape)]
    halves = [Value(tuple(shape), cut(op, value, dim, start, start + half)) for start in (0, half)]
    return align(op, *halves).labellings

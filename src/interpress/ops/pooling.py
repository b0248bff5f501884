"""Pooling, resizing and sampling: operators over space that treat every channel separately."""

from __future__ import annotations

from interpress.labels.labelling import Labellings
from interpress.labels.relations import mix, uniform
from interpress.labels.trace import Op
from interpress.ops.registry import rule

_POOLS = [
    f"aten.{kind}{dims}d"
    for kind in ("avg_pool", "max_pool", "adaptive_avg_pool")
    for dims in (1, 2, 3)
]
_RESIZES = [
    "aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d",
    "aten._upsample_nearest_exact1d", "aten._upsample_nearest_exact2d",
    "aten._upsample_nearest_exact3d", "aten.upsample_linear1d", "aten.upsample_bilinear2d",
    "aten.upsample_trilinear3d", "aten.upsample_bicubic2d", "aten._upsample_bilinear2d_aa",
    "aten._upsample_bicubic2d_aa", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d",
]  # fmt: skip
_WITH_INDICES = [
    f"aten.{kind}{dims}d{suffix}"
    for kind, suffix in (("max_pool", "_with_indices"), ("adaptive_max_pool", ""))
    for dims in (1, 2, 3)
]


def _space(op: Op) -> range:
    """Return the spatial dims: the last ones, as many as the operator's name says."""
    count = next(int(letter) for letter in reversed(op.family) if letter.isdigit())
    ndim = len(op.inputs()[0].shape)
    return range(ndim - count, ndim)


@rule(*_POOLS, *_RESIZES)
def pool(op: Op) -> Labellings:
    """Follow channels whose output depends on the same channel of the input only."""
    return uniform(op, op.inputs()[0], _space(op))


@rule(*_WITH_INDICES)
def pool_with_indices(op: Op) -> list[Labellings]:
    """Follow channels as in `pool`, also for the indices of the maxima."""
    labellings = uniform(op, op.inputs()[0], _space(op))
    return [labellings, labellings]


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sample(op: Op) -> Labellings:
    """Follow channels, dim 1, that are sampled at the same points; a grid of channels freezes."""
    x, grid = op.inputs()
    mix(op, grid, range(len(grid.shape)), "uses its channels as sampling positions")
    return uniform(op, x, range(2, len(x.shape)))

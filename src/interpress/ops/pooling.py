"""Operators that slide or resample over space and leave every channel to itself."""

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
    """The dims slid over: as many trailing ones as the operator's name says."""
    count = next(int(letter) for letter in reversed(op.family) if letter.isdigit())
    ndim = len(op.inputs()[0].shape)
    return range(ndim - count, ndim)


@rule(*_POOLS, *_RESIZES)
def pool(op: Op) -> Labellings:
    """A channel of the output is made from the same channel of the input."""
    return uniform(op, op.inputs()[0], _space(op))


@rule(*_WITH_INDICES)
def pool_with_indices(op: Op) -> list[Labellings]:
    """As `pool`, with the places of the maxima."""
    labellings = uniform(op, op.inputs()[0], _space(op))
    return [labellings, labellings]


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sample(op: Op) -> Labellings:
    """Channels, dim 1, are sampled alike; the grid may hold none."""
    x, grid = op.inputs()
    mix(op, grid, range(len(grid.shape)), "uses it as sampling positions")
    return uniform(op, x, range(2, len(x.shape)))

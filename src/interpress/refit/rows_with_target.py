"""The rows of one layer with what they should become, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from interpress.graph.program import fixed_size
from interpress.refit.layer_pair import LayerPair
from interpress.refit.layer_rows import FullRows, LayerRows, LayerSample


def rows_with_target(
    layer: LayerPair,
    full: FullRows,
    sample: LayerSample,
    factors: Callable[[Tensor], Tensor] | None = None,
) -> LayerRows:
    """Return sampled inputs with the target that the full network's rows set for them.

    `factors` returns how much the rows of a target count, as square roots; None if all count alike.
    """
    kept = layer.kept.to(full.output.device)
    target = full.output.index_select(1, kept)
    offset = target.new_zeros(1, target.shape[1]) if sample.summand is None else sample.summand
    if layer.small_epilogue.norm is not None:
        offset = offset + layer.small_epilogue.norm.shift.to(target)
    if layer.summands is not None and full.summand is not None:
        target = target + full.summand.index_select(1, kept)
    weights = sample.weights
    if factors is not None:
        by_size = factors(target).square_().reshape(-1).to("cpu", torch.float32)
        weights = by_size if weights is None else weights * by_size
    return LayerRows(sample.X, target, offset, weights).only(sample.counts)


def row_weights(
    layer: LayerPair, weights: Tensor, operand: Tensor, at: Tensor | None, rows: int
) -> Tensor:
    """Return the weight of every row: that of its example, where rows belong to examples."""
    batch_dim = layer.small_node.meta["val"].shape[0]
    if len(operand) != len(weights) or fixed_size(batch_dim) is not None:
        return torch.ones(rows)
    if at is None or layer.dense.spatial:
        return weights.repeat_interleave(rows // len(weights))
    per_example = operand.numel() // operand.shape[-1] // len(weights)
    return weights[at // per_example]

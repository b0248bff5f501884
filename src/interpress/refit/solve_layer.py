"""Solve one dense layer of the smaller network: all its weights, or two factors of a given rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.linalg.low_rank import Factors, factors_of, usable_scales
from interpress.linalg.precision import exact_dtype
from interpress.refit.layer_pair import LayerPair
from interpress.refit.layer_rows import LayerRows
from interpress.refit.output_chunks import OutputChunks
from interpress.refit.regression import Solution


class ThinSolution(NamedTuple):
    """The factors that replace a layer, the change of its bias, and its errors."""

    factors: Factors
    shift: Tensor
    """(outputs,); zero if the layer has no bias and no norm."""
    before: float
    """The error of the layer before it was factored."""
    after: float


def solve_layer(
    layer: LayerPair, rows: Sequence[LayerRows], W0: Tensor, bias: Tensor | None
) -> Solution:
    """Return the change of `W0` (outputs, unknowns) and of the bias."""
    inputs, kernel = [batch.X for batch in rows], math.prod(layer.dense.shape[2:])
    return _regression(layer, rows, inputs, bias, None, kernel).solve(W0, bias)


def solve_thin_layer(
    layer: LayerPair, rows: Sequence[LayerRows], W0: Tensor, bias: Tensor | None, rank: int
) -> ThinSolution:
    """Return factors of a given rank whose outputs come closest to the full network's.

    All weights are solved for first. The product of the factors is the best approximation of
    that layer's outputs on these rows. Then `A` and the bias are solved for again, on the values
    between the two layers.
    """
    solved = solve_layer(layer, rows, W0, bias)
    W, shift = (W0, solved.shift) if solved.change is None else (W0 + solved.change, solved.shift)
    factors, shift = _projected(layer, rows, W, shift, rank, shifts=_shifts(layer, bias))
    thin_inputs = [batch.X @ factors.B.to(batch.X).T for batch in rows]  # (rows, 1, rank)
    regression = _regression(layer, rows, thin_inputs, bias, shift)
    again = regression.solve(factors.A, None if bias is None else bias + shift)
    if again.change is not None:
        factors, shift = Factors(factors.A + again.change, factors.B), shift + again.shift
    return ThinSolution(factors, shift, solved.before, again.after)


def _projected(
    layer: LayerPair,
    rows: Sequence[LayerRows],
    W: Tensor,
    shift: Tensor,
    rank: int,
    *,
    shifts: bool,
) -> tuple[Factors, Tensor]:
    """Return the best approximation of the outputs of `W` on these rows, and the new shift."""
    C, mean = _moments_of_outputs(layer, rows, W, shifts=shifts)
    factors = factors_of(W, C, _scales(layer, W), rank)
    if mean is not None:
        shift = shift + (W - factors.product()) @ mean.to(W)
    return factors, shift


def _shifts(layer: LayerPair, bias: Tensor | None) -> bool:
    """Return whether the layer has a bias to change: its own, or the mean of the norm after it."""
    return bias is not None or layer.small_epilogue.norm is not None


def _scales(layer: LayerPair, W: Tensor) -> Tensor:
    """Return (outputs,) how much an error in each output counts."""
    norm = layer.small_epilogue.norm
    return W.new_ones(len(W)) if norm is None else usable_scales(norm.scale).to(W)


def _regression(
    layer: LayerPair,
    rows: Sequence[LayerRows],
    inputs: Sequence[Tensor],
    bias: Tensor | None,
    shift: Tensor | None,
    kernel: int = 1,
) -> OutputChunks:
    """Return the regression of the layer on some inputs.

    `shift` is added to the outputs, before the norm. If there is a bias, the caller adds it there.
    `kernel` inputs in a row belong to the same channel.
    """
    norm = layer.small_epilogue.norm
    offsets = [batch.offset for batch in rows]
    offsets = offsets[:1] if layer.summands is None else offsets
    if shift is not None and bias is None and norm is not None:
        added = (norm.scale * shift.to(norm.scale)).to(offsets[0])
        offsets = [offset + added for offset in offsets]
    weights = [batch.weights for batch in rows if batch.weights is not None]
    return OutputChunks(
        inputs,
        [batch.target for batch in rows],
        offsets,
        scale=None if norm is None else norm.scale,
        activation=layer.activation,
        shifts=_shifts(layer, bias),
        weights=torch.cat(weights) if weights else None,
        kernel=kernel,
    )


def _moments_of_outputs(
    layer: LayerPair, rows: Sequence[LayerRows], W: Tensor, *, shifts: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the covariance of the layer's scaled outputs, and the mean of its inputs.

    Without a bias to absorb a mean, they are second moments, and the mean is None.
    """
    dtype = exact_dtype(W.device)
    outputs = len(W)
    gram = torch.zeros(outputs, outputs, dtype=dtype, device=W.device)
    total = torch.zeros(W.shape[1], dtype=dtype, device=W.device)
    count = 0.0
    scaled = (_scales(layer, W)[:, None] * W).T  # (unknowns, outputs)
    for batch in rows:
        X = batch.X.reshape(len(batch.X), -1).to(W)
        weights = X.new_ones(len(X)) if batch.weights is None else batch.weights.to(X)
        values = (X @ scaled).to(dtype)
        gram += values.T @ (weights[:, None] * values)
        total += weights.to(dtype) @ X.to(dtype)
        count += float(weights.sum())
    gram /= max(count, 1e-30)
    if not shifts:
        return gram, None
    mean = total / max(count, 1e-30)
    centre = mean @ scaled.to(dtype)
    return gram - torch.outer(centre, centre), mean

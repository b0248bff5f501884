"""The consumers of a tap as selections see them: the weights that read it, and what they lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.calibration.sensitivity import Sensitivity
from interpress.calibration.statistics import PatchMoments, Statistics
from interpress.graph.patterns import arguments_of, batch_norm_after, scaled_by_norm
from interpress.linalg.elimination import Consumer
from interpress.linalg.precision import exact_dtype
from interpress.selection.units import columns_by_unit
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Absorber, Tap


def weight_gram(
    spaces: Spaces,
    tap: Tap,
    parameters: Mapping[str, Tensor],
    sensitivity: Sensitivity | None = None,
) -> Tensor:
    """Return `H = U @ U.T` of a tap: `U` holds all weights that read it.

    Every output is scaled as its batch norm does. Where two activations meet (query and key), the
    weight that produces the other one is used. With a sensitivity, `e @ H @ e` is the divergence
    that an error `e` of the tap causes.
    """
    if sensitivity is not None and not sensitivity.of_consumer:
        return sensitivity.metric(spaces.program.device)
    H: Tensor | None = None
    norm = batch_norm_after(spaces.program, tap.sites[0].op.node, parameters)
    for absorber in tap.absorbers:
        weight = parameters[absorber.weight]
        weight = weight.to(exact_dtype(weight.device))
        if norm is not None and absorber.dim == 1 and len(norm.scale) == len(weight):
            weight = weight * norm.scale.to(weight).reshape(-1, *[1] * (weight.ndim - 1))
        if sensitivity is not None:
            root = torch.linalg.cholesky(sensitivity.metric(weight.device).to(weight))
            if absorber.dim == 0:
                weight = weight @ root
            else:
                weight = (root.mT @ weight.flatten(1)).reshape(weight.shape)
        outer = _outer(weight, absorber, tap.size)
        H = outer if H is None else H + outer.to(H)
    return torch.zeros(tap.size, tap.size, dtype=torch.float64) if H is None else H


def _outer(weight: Tensor, absorber: Absorber, size: int) -> Tensor:
    """Return `U @ U.T` for one weight, over all its other dims and its repeats."""
    H = weight.new_zeros(size, size)
    if absorber.column.ndim == 2:  # a grouped convolution: one block per group
        for block, columns in zip(weight.chunk(len(absorber.column)), absorber.column, strict=True):
            U = block.movedim(1, 0).reshape(block.shape[1], -1)
            H[columns[:, None], columns] += U @ U.T
        return H
    rows = weight.movedim(absorber.dim, 0).reshape(len(absorber.column), -1)
    for repeat in absorber.repeat[absorber.column >= 0].unique():
        reads = (absorber.column >= 0) & (absorber.repeat == repeat)
        entries = torch.nonzero(reads).reshape(-1)
        columns, U = absorber.column[entries], rows[entries]
        if torch.equal(columns, torch.arange(size)):  # without copies of a wide matrix
            H.addmm_(U, U.T)
        else:
            H[columns[:, None], columns] += U @ U.T
    return H


def patch_consumer(
    spaces: Spaces,
    tap: Tap,
    units_and_count: tuple[Tensor, int],
    statistics: Statistics,
    parameters: Mapping[str, Tensor],
) -> Consumer | None:
    """Return the consumer of a tap as a regression on patches; the inputs of a unit are a block.

    The units are given by the unit of every column, and their number. None if the tap has no single
    dense consumer, or if its patches were not measured.
    """
    units, count = units_and_count
    variance = statistics.output_variances.get(tap.name, 0.0)
    (absorber,) = tap.absorbers if variance > 0 else (None,)
    if absorber is None or absorber.column.ndim > 1:
        return None
    node = tap.sites[0].op.node
    weight = parameters[absorber.weight]
    if absorber.dim == 0:  # a linear layer with a weight of shape (in, out)
        weight, absorber = weight.T, replace(absorber, dim=1)
    weight = scaled_by_norm(spaces.program, node, parameters, weight)
    moments = statistics.moments.get(tap.name)
    if moments is None:
        blocks = columns_by_unit(units, count)
        return _channel_consumer(absorber, weight, blocks, statistics.halves[tap.name], variance)
    W = _projected(weight.to(torch.promote_types(weight.dtype, torch.float32)).flatten(1), moments)
    column = absorber.column.repeat_interleave(W.shape[1] // len(absorber.column))
    unit = torch.where(column >= 0, units[column.clamp(min=0)], -1)
    blocks = columns_by_unit(unit, count)
    if blocks is None:
        return None
    if tap.name in statistics.sensitivities:
        metric = statistics.sensitivities[tap.name].metric(W.device).to(W)
        W, variance = torch.linalg.cholesky(metric).mT @ W, 1.0  # the error is a divergence
    has_norm = batch_norm_after(spaces.program, node, parameters) is not None
    has_bias = has_norm or arguments_of(node).get("bias") is not None
    G = moments.moments(centred=has_bias)
    if not bool(G.isfinite().all()):  # activations too large to square in float32
        return None
    if not bool(G.to(W).isfinite().all()):
        W = W.to(G)

    def halves(half: int) -> tuple[Tensor, Tensor]:
        fitted = moments.moments(centred=has_bias, half=half).to(W)
        return fitted, moments.moments(centred=has_bias, half=1 - half).to(W)

    return Consumer(G.to(W), W.T, blocks, variance, halves if min(moments.rows) else None)


def _projected(W: Tensor, moments: PatchMoments) -> Tensor:
    """Return the weights in the basis that large patches were measured in."""
    if moments.dual is None:
        return W
    by_channel = W.reshape(len(W), *moments.dual.shape[:2])
    return torch.einsum("ock,ckp->ocp", by_channel, moments.dual.to(W)).flatten(1)


def _channel_consumer(
    absorber: Absorber, weight: Tensor, blocks: Tensor | None, halves: Halves, variance: float
) -> Consumer | None:
    """Return the same with one input per channel, as `T` has it, for very large patches."""
    if blocks is None or bool((absorber.repeat > 0).any()) or bool((absorber.column < 0).any()):
        return None
    rows = weight.to(halves.second).movedim(absorber.dim, 0).reshape(len(absorber.column), -1)
    U = torch.empty_like(rows)
    U[absorber.column] = rows
    G = halves.factor.G / max(halves.factor.rows, 1)

    def parts(half: int) -> tuple[Tensor, Tensor]:
        return halves.moments(half), halves.moments(1 - half)

    return Consumer(G, U, blocks, variance, parts if halves.both else None)

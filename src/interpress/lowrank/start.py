"""The first factors of layers, from the outputs of the original network."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from interpress.linalg.low_rank import factors_of
from interpress.lowrank.layers import FactorableLayer
from interpress.lowrank.spectra import Spectra
from interpress.lowrank.split import outputs_kept
from interpress.refit.thin_layer import ThinLayer
from interpress.surgery.cut import Cut


def first_factors(
    spectra: Spectra, cut: Cut, smaller: nn.Module, ranks: Mapping[str, int]
) -> dict[str, ThinLayer]:
    """Return the layers of the smaller network that become two, by weight.

    The factors are the principal components of the original's outputs, of those that are kept.
    """
    tensors = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    return {
        layer.dense.weight: _first(spectra, layer, cut, tensors, ranks[layer.name])
        for layer in spectra.layers
        if layer.name in ranks
    }


def _first(
    spectra: Spectra, layer: FactorableLayer, cut: Cut, tensors: Mapping[str, Tensor], rank: int
) -> ThinLayer:
    dense = layer.dense
    weight = tensors[dense.weight].detach()
    W = weight.reshape(len(weight), -1)
    kept = outputs_kept(cut, layer).to(W.device)
    C = spectra.covariance(layer, kept).to(W.device)
    D = spectra.scales(layer)[kept.to(C.device)].to(W.device)
    factors = factors_of(W, C, D, rank)
    start = {dense.weight: factors.product().reshape(weight.shape)}
    mean = spectra.moments[layer.name].mean().to(W.device)[kept]
    norm = layer.epilogue.norm
    if dense.bias is not None:
        bias = tensors[dense.bias].detach()
        start[dense.bias] = bias + _lost(mean - bias.to(mean), factors.A, D).to(bias)
    elif norm is not None:
        running = tensors[norm.running_mean].detach()
        lost = _lost(mean, factors.A, D)
        start[norm.running_mean] = running - lost.to(running)
    return ThinLayer(factors, start)


def _lost(values: Tensor, A: Tensor, D: Tensor) -> Tensor:
    """Return (outputs,): what the projection `A @ A^+` loses of some values."""
    scaled_A = D[:, None] * A.to(D)  # its columns are orthonormal
    return values - A.to(D) @ (scaled_A.T @ (D * values.to(D)))

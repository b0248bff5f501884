"""Low-rank factorisation: one convolution or linear layer becomes two thinner ones.

A layer `W` (outputs x inputs, with the kernel positions among the inputs) becomes `A @ B`. `B`
keeps the kernel and has r outputs; `A` is a 1 x 1 convolution, or a linear layer, after it. There
are three ways to choose the factors and the ranks:

- `svd` (Denton et al., NeurIPS 2014): `A @ B` is the best approximation of the weights. Every layer
  keeps the same fraction of its full rank.
- `pca` (Zhang et al., TPAMI 2016): `A @ B` is the best approximation of the layer's outputs on the
  data. The ranks maximize the energy that is kept.
- `learned` (Idelbayev and Carreira-Perpinan, CVPR 2020): the ranks minimize the error of the
  weights plus a cost per FLOP. This is the compression step of that method. The training steps that
  it alternates with are left out, because networks are compared before any training here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interpress.demo import flops
from interpress.linalg.low_rank import principal_components
from interpress.surgery.thin_layers import thin_pair

KINDS = ("svd", "pca", "learned")

# The rank rules have one parameter that trades size against error. 60 halvings of its range
# determine it to about float64 precision.
_BISECTIONS = 60


@dataclass
class FactoredLayer:
    """A layer and its factors: `W = left @ right` at full rank, modes in decreasing order."""

    name: str
    module: nn.Conv2d | nn.Linear
    left: Tensor
    """(outputs, modes)"""
    right: Tensor
    """(modes, inputs)"""
    energies: Tensor
    """Squared size of every mode, largest first."""
    positions: int
    """Number of positions at which the layer is applied to one example."""
    shift: Tensor | None = None
    """The mean of the outputs, if the factors approximate the outputs minus their mean."""

    @property
    def full_cost(self) -> int:
        """Multiplications of the original layer."""
        return self.module.weight.numel() * self.positions

    @property
    def cost_per_rank(self) -> int:
        """Multiplications per rank."""
        return (self.left.shape[0] + self.right.shape[1]) * self.positions

    @property
    def max_rank(self) -> int:
        """The largest rank at which the two factors cost less than the layer."""
        return min((self.full_cost - 1) // self.cost_per_rank, len(self.energies))

    def cost(self, rank: int) -> int:
        """Return the multiplications at a rank; above `max_rank` the layer is not factored."""
        return self.full_cost if rank > self.max_rank else rank * self.cost_per_rank


def factorize(model: nn.Module, images: Tensor, kind: str, keep: float) -> nn.Module:
    """Return a copy with factored layers and at most `keep` of the FLOPs."""
    original_flops = flops(model, images[:1].to(next(model.parameters()).device))
    layers = factored_layers(model, images, kind)
    fixed_flops = original_flops - 2 * sum(layer.full_cost for layer in layers)
    choose_ranks = {"svd": _same_fraction, "pca": _by_energy, "learned": _by_cost}[kind]
    too_large, small_enough = (0.0, 1.0) if kind == "svd" else (-30.0, 30.0)
    best: dict[str, int] | None = None
    for _ in range(_BISECTIONS):
        trade_off = (too_large + small_enough) / 2
        ranks = choose_ranks(layers, trade_off)
        cost = fixed_flops + 2 * sum(layer.cost(ranks[layer.name]) for layer in layers)
        if cost <= keep * original_flops:
            best, small_enough = ranks, trade_off
        else:
            too_large = trade_off
    if best is None:
        raise RuntimeError(
            f"{kind} cannot reach {keep:.0%} of the FLOPs: the other layers need more than that"
        )
    return _replace_layers(model, layers, best)


def factored_layers(model: nn.Module, images: Tensor, kind: str) -> list[FactoredLayer]:
    """Return the factors of every linear layer and ungrouped convolution."""
    modules = dense_modules(model)
    positions, moments = output_moments(model, modules, images)
    return [
        _principal_components(name, module, positions[name], moments[name])
        if kind == "pca" else _singular_vectors(name, module, positions[name])
        for name, module in modules.items()
    ]  # fmt: skip


def dense_modules(model: nn.Module) -> dict[str, nn.Conv2d | nn.Linear]:
    """Return every linear layer and ungrouped convolution by name."""
    return {
        name: module for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    }  # fmt: skip


Moments = tuple[Tensor, Tensor, int]
"""Of the rows of a layer's outputs: Gram matrix, sum, and count."""


def output_moments(
    model: nn.Module, modules: dict[str, nn.Conv2d | nn.Linear], images: Tensor
) -> tuple[dict[str, int], dict[str, Moments]]:
    """Return positions per example and output moments of every layer, from one pass."""
    positions: dict[str, int] = {}
    moments: dict[str, Moments] = {}

    def hook_for(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(module: nn.Module, args: object, output: Tensor) -> None:
            rows = output.movedim(1, -1).flatten(0, -2).double()  # (rows, outputs)
            positions[name] = len(rows) // len(output)
            gram, total, count = moments.get(name, (0.0, 0.0, 0))
            moments[name] = (gram + rows.T @ rows, total + rows.sum(0), count + len(rows))

        return hook

    handles = [module.register_forward_hook(hook_for(name)) for name, module in modules.items()]
    device = next(model.parameters()).device
    try:
        with torch.no_grad():
            for batch in images.split(250):
                model(batch.to(device))
    finally:
        for handle in handles:
            handle.remove()
    return positions, moments


def _singular_vectors(name: str, module: nn.Conv2d | nn.Linear, positions: int) -> FactoredLayer:
    U, S, V = torch.linalg.svd(module.weight.detach().flatten(1).double(), full_matrices=False)
    return FactoredLayer(name, module, U * S, V, S.square(), positions)


def _principal_components(
    name: str, module: nn.Conv2d | nn.Linear, positions: int, moments: Moments
) -> FactoredLayer:
    """Return the factors of `mean + P @ P.T @ (y - mean)`: P are principal components of y."""
    gram, total, count = moments
    mean = total / count
    energies, P = principal_components(gram / count - torch.outer(mean, mean))
    W = module.weight.detach().flatten(1).double()
    return FactoredLayer(name, module, P, P.T @ W, energies, positions, mean)


def _same_fraction(layers: list[FactoredLayer], removed: float) -> dict[str, int]:
    """Return ranks that keep the same fraction, `1 - removed`, of every layer's full rank."""
    return {layer.name: max(1, round((1 - removed) * len(layer.energies))) for layer in layers}


def _by_energy(layers: list[FactoredLayer], log_price: float) -> dict[str, int]:
    """Return ranks whose last mode adds more to the log of the energy than its FLOPs cost."""
    total_cost = sum(layer.full_cost for layer in layers)
    ranks = {}
    for layer in layers:
        kept_energy = layer.energies.cumsum(0)
        gains = layer.energies[1:] / kept_energy[1:].clamp(min=1e-300)
        price = math.exp(log_price) * layer.cost_per_rank / total_cost
        ranks[layer.name] = 1 + int((gains > price).sum())
    return ranks


def _by_cost(layers: list[FactoredLayer], log_price: float) -> dict[str, int]:
    """Return ranks that minimize the relative error of the weights plus the price of the FLOPs."""
    total_cost = sum(layer.full_cost for layer in layers)
    ranks = {}
    for layer in layers:
        max_rank = layer.max_rank
        error = 1 - layer.energies.cumsum(0)[:max_rank] / layer.energies.sum()
        cost = torch.arange(1, max_rank + 1).to(error) * layer.cost_per_rank / total_cost
        objective = error + math.exp(log_price) * cost
        unfactored = math.exp(log_price) * layer.full_cost / total_cost
        best = int(objective.argmin())
        ranks[layer.name] = best + 1 if float(objective[best]) < unfactored else max_rank + 1
    return ranks


def _replace_layers(
    model: nn.Module, layers: list[FactoredLayer], ranks: dict[str, int]
) -> nn.Module:
    smaller = copy.deepcopy(model)
    for layer in layers:
        rank = ranks[layer.name]
        if rank <= layer.max_rank:
            parent, _, attribute = layer.name.rpartition(".")
            setattr(smaller.get_submodule(parent), attribute, thin_layers(layer, rank))
    return smaller.eval()


def thin_layers(layer: FactoredLayer, rank: int) -> nn.Sequential:
    """Return the two layers `B`, `A` that replace a layer at this rank."""
    module = layer.module
    A, B = layer.left[:, :rank], layer.right[:rank]
    thin = thin_pair(module, rank)
    first: Any
    last: Any
    first, last = thin
    with torch.no_grad():
        first.weight.copy_(B.reshape(first.weight.shape))
        last.weight.copy_(A.reshape(last.weight.shape))
    last.bias = nn.Parameter(_bias(layer, A).to(last.weight))
    return thin


def _bias(layer: FactoredLayer, A: Tensor) -> Tensor:
    """Return the bias after `A`."""
    bias = torch.zeros(len(A), dtype=A.dtype, device=A.device)
    original = None if layer.module.bias is None else layer.module.bias.detach().double()
    if layer.shift is not None:  # mean + A @ A.T @ (W x + b - mean)
        bias += layer.shift - A @ (A.T @ layer.shift)
        bias += 0 if original is None else A @ (A.T @ original)
    elif original is not None:
        bias += original
    return bias

"""Low-rank factorization of convolutions and linear layers: one layer becomes two thinner ones.

A layer `W` (outputs x inputs, kernel taps among the inputs) becomes `A @ B`: `B` keeps the kernel
and has r outputs, `A` is a 1 x 1 convolution (or a linear layer) after it. Three ways to choose:

- `svd` (Denton et al., NeurIPS 2014): the best `A @ B` for the weights, the same share of the full
  rank in every layer;
- `pca` (Zhang et al., TPAMI 2016): the best for the layer's outputs on data, ranks by the energy
  that is kept;
- `learned` (Idelbayev and Carreira-Perpinan, CVPR 2020): ranks that minimize the error of the
  weights plus a price per FLOP, its compression step; the training that it alternates with is left
  out, as everywhere before fine-tuning.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interpress.demo import flops

KINDS = ("svd", "pca", "learned")


@dataclass
class _Layer:
    """A layer that can be factored: its modes by size, and what one rank costs."""

    name: str
    module: nn.Conv2d | nn.Linear
    left: Tensor
    """(outputs, modes)"""
    right: Tensor
    """(modes, inputs)"""
    energies: Tensor
    """Squared size of every mode, largest first."""
    positions: int
    """How often the layer is applied to one example."""
    shift: Tensor | None = None
    """What is added to the outputs, where the factors are about their mean."""

    @property
    def full(self) -> int:
        """Multiplications of the layer as it is."""
        return self.module.weight.numel() * self.positions

    @property
    def per_rank(self) -> int:
        """Multiplications of one rank."""
        return (self.left.shape[0] + self.right.shape[1]) * self.positions

    @property
    def most(self) -> int:
        """The largest rank that saves anything."""
        return min((self.full - 1) // self.per_rank, len(self.energies))

    def cost(self, rank: int) -> int:
        """Multiplications at a rank; above the largest one it stays whole."""
        return self.full if rank > self.most else rank * self.per_rank


def factored(model: nn.Module, images: Tensor, kind: str, keep: float) -> nn.Module:
    """The network with at most so much of its FLOPs, layers factored by one of three ways."""
    whole = flops(model, images[:1].to(next(model.parameters()).device))
    layers = _layers(model, images, kind)
    fixed = whole - 2 * sum(layer.full for layer in layers)
    choose = {"svd": _same_share, "pca": _by_energy, "learned": _by_price}[kind]
    low, high = (0.0, 1.0) if kind == "svd" else (-30.0, 30.0)
    best: dict[str, int] | None = None
    for _ in range(60):  # a knob from keeping all to keeping next to nothing
        middle = (low + high) / 2
        ranks = choose(layers, middle)
        cost = fixed + 2 * sum(layer.cost(ranks[layer.name]) for layer in layers)
        if cost <= keep * whole:
            best, high = ranks, middle
        else:
            low = middle
    if best is None:
        raise RuntimeError(f"{kind} cannot reach {keep:.0%} of the FLOPs: too much is not dense")
    return _replaced(model, layers, best)


def _layers(model: nn.Module, images: Tensor, kind: str) -> list[_Layer]:
    found: dict[str, nn.Conv2d | nn.Linear] = {
        name: module for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    }  # fmt: skip
    device = next(model.parameters()).device
    positions: dict[str, int] = {}
    moments: dict[str, tuple[Tensor, Tensor, int]] = {}

    def watch(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def see(module: nn.Module, args: object, output: Tensor) -> None:
            rows = output.movedim(1, -1).flatten(0, -2).double()
            positions[name] = len(rows) // len(output)
            old = moments.get(name, (0.0, 0.0, 0))
            moments[name] = (old[0] + rows.T @ rows, old[1] + rows.sum(0), old[2] + len(rows))

        return see

    handles = [module.register_forward_hook(watch(name)) for name, module in found.items()]
    try:
        with torch.no_grad():
            for some in images.split(250):
                model(some.to(device))
    finally:
        for handle in handles:
            handle.remove()
    return [
        _principal(name, module, positions[name], moments[name])
        if kind == "pca" else _singular(name, module, positions[name])
        for name, module in found.items()
    ]  # fmt: skip


def _singular(name: str, module: nn.Conv2d | nn.Linear, positions: int) -> _Layer:
    U, S, V = torch.linalg.svd(module.weight.detach().flatten(1).double(), full_matrices=False)
    return _Layer(name, module, U * S, V, S.square(), positions)


def _principal(
    name: str, module: nn.Conv2d | nn.Linear, positions: int, moments: tuple[Tensor, Tensor, int]
) -> _Layer:
    """Outputs y become mean + P @ P.T @ (y - mean), P the principal directions."""
    gram, total, rows = moments
    mean = total / rows
    energies, P = torch.linalg.eigh(gram / rows - torch.outer(mean, mean))
    energies, P = energies.flip(0).clamp(min=0), P.flip(1)
    W = module.weight.detach().flatten(1).double()
    return _Layer(name, module, P, P.T @ W, energies, positions, mean)


def _same_share(layers: list[_Layer], knob: float) -> dict[str, int]:
    return {layer.name: max(1, round((1 - knob) * len(layer.energies))) for layer in layers}


def _by_energy(layers: list[_Layer], knob: float) -> dict[str, int]:
    """A mode stays if the log of the kept energy gains more by it than the price of its FLOPs."""
    whole = sum(layer.full for layer in layers)
    ranks = {}
    for layer in layers:
        kept = layer.energies.cumsum(0)
        gains = layer.energies[1:] / kept[1:].clamp(min=1e-300)
        price = math.exp(knob) * layer.per_rank / whole
        ranks[layer.name] = 1 + int((gains > price).sum())
    return ranks


def _by_price(layers: list[_Layer], knob: float) -> dict[str, int]:
    """The rank with the least (relative) error of the weights plus price of its FLOPs."""
    whole = sum(layer.full for layer in layers)
    ranks = {}
    for layer in layers:
        total = layer.energies.sum()
        error = 1 - layer.energies.cumsum(0)[: layer.most] / total
        cost = torch.arange(1, layer.most + 1).to(error) * layer.per_rank / whole
        objective = error + math.exp(knob) * cost
        untouched = math.exp(knob) * layer.full / whole
        best = int(objective.argmin())
        ranks[layer.name] = best + 1 if float(objective[best]) < untouched else layer.most + 1
    return ranks


def _replaced(model: nn.Module, layers: list[_Layer], ranks: dict[str, int]) -> nn.Module:
    smaller = copy.deepcopy(model)
    for layer in layers:
        rank = ranks[layer.name]
        if rank <= layer.most:
            parent, _, own = layer.name.rpartition(".")
            setattr(smaller.get_submodule(parent), own, _pair(layer, rank))
    return smaller.eval()


def _pair(layer: _Layer, rank: int) -> nn.Sequential:
    module = layer.module
    A, B = layer.left[:, :rank], layer.right[:rank]
    bias = torch.zeros(len(A), dtype=A.dtype, device=A.device)
    inner = None if module.bias is None else module.bias.detach().double()
    if layer.shift is not None:  # mean + P P' (W x + b - mean)
        bias += layer.shift - A @ (A.T @ layer.shift)
        bias += 0 if inner is None else A @ (A.T @ inner)
    elif inner is not None:
        bias += inner
    first: nn.Conv2d | nn.Linear
    last: nn.Conv2d | nn.Linear
    if isinstance(module, nn.Linear):
        first, last = nn.Linear(B.shape[1], rank, bias=False), nn.Linear(rank, len(A))
    else:
        first = nn.Conv2d(
            module.in_channels, rank, module.kernel_size,  # type: ignore[arg-type]
            module.stride, module.padding, module.dilation, bias=False,  # type: ignore[arg-type]
        )  # fmt: skip
        last = nn.Conv2d(rank, len(A), 1)
    first.to(module.weight)
    last.to(module.weight)
    with torch.no_grad():
        first.weight.copy_(B.reshape(first.weight.shape))
        last.weight.copy_(A.reshape(last.weight.shape))
        assert last.bias is not None
        last.bias.copy_(bias)
    return nn.Sequential(first, last)

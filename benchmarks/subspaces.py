"""Low rank by several subspaces per layer: ALDS and Messi.

The weight of a layer is a matrix `W` (outputs x inputs, kernel positions among the inputs).

- `alds` (Liebenwein, Maalouf, Gal, Feldman and Rus, NeurIPS 2021): the input channels are cut into
  k slices of equal length, `W = [W_1 ... W_k]`, and every slice is replaced by its best
  approximation of rank j, `W_i ~= A_i @ B_i`. The first layer is a convolution of k groups, the
  second one is 1 x 1. With singular values s of the slices, the relative error is at most
  `sqrt(k) * max_i s_{j+1}(W_i) / s_1(W)`. All layers get the same bound, the smallest that the
  budget allows (global step); then every layer gets the k of the smallest bound at its cost (local
  step). Both alternate until no k changes, from several random starts. Adapted: the budget is in
  FLOPs, not in parameters.
- `messi` (Maalouf, Lang, Rus and Feldman, ICLR 2021): the outputs of a layer are clustered, so that
  the rows of every cluster lie close to a subspace of their own of dimension j (projective
  clustering: `min sum_rows dist(row, subspace of its cluster) ** 2`), and `W_c ~= A_c @ B_c` for
  the rows of cluster c. Adapted: the publication treats linear layers; here convolutions are
  matrices as above, and every layer keeps the same fraction of its FLOPs.

With one slice or one cluster both are the SVD of the weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.lowrank import dense_modules, output_moments
from benchmarks.subspace_layers import clustered_layers, sliced_layers
from interpress.demo import flops

KINDS = ("alds", "messi")
SLICES = (1, 2, 4, 8, 16)
"""The numbers of slices that ALDS chooses from."""
CLUSTERS = 2
"""Clusters per layer of Messi: more of them need a smaller dimension at the same cost."""
_STARTS = 8  # of ALDS: the first without slices, the others random
_ROUNDS = 20  # of global and local steps; in practice two to five suffice
_BISECTIONS = 60


@dataclass(eq=False)
class Layer:
    """A layer that could be factored."""

    name: str
    module: nn.Conv2d | nn.Linear
    positions: int
    """Number of positions at which the layer is applied to one example."""

    @property
    def matrix(self) -> Tensor:
        """`W` (outputs, inputs) in double precision."""
        return self.module.weight.detach().flatten(1).double()

    @property
    def full_cost(self) -> int:
        """Multiplications of the layer."""
        return self.module.weight.numel() * self.positions


def factorize(model: nn.Module, images: Tensor, kind: str, keep: float) -> nn.Module:
    """Return a copy with factored layers and at most `keep` of the FLOPs."""
    modules = dense_modules(model)
    positions, _ = output_moments(model, modules, images[:1])
    layers = [Layer(name, module, positions[name]) for name, module in modules.items()]
    original_flops = flops(model, images[:1].to(next(model.parameters()).device))
    # multiplications left for the layers, when all others keep theirs
    budget = sum(layer.full_cost for layer in layers) - (1 - keep) * original_flops / 2
    replacements = {"alds": _alds, "messi": _messi}[kind](layers, budget)
    smaller = copy.deepcopy(model)
    for name, thin in replacements.items():
        parent, _, attribute = name.rpartition(".")
        setattr(smaller.get_submodule(parent), attribute, thin)
    return smaller.eval()


def _alds(layers: Sequence[Layer], budget: float) -> dict[str, nn.Module]:
    choices = choose_slices([SlicedLayer(layer) for layer in layers], budget)
    return {
        layer.name: sliced_layers(layer.module, slices, rank)
        for layer, (slices, rank) in zip(layers, choices, strict=True)
        if rank is not None
    }


def _messi(layers: Sequence[Layer], budget: float) -> dict[str, nn.Module]:
    def ranks(share: float) -> list[int | None]:
        return [cluster_rank(layer, share) for layer in layers]

    def cost(share: float) -> float:
        return sum(
            layer.full_cost if rank is None else rank * _cluster_cost(layer)
            for layer, rank in zip(layers, ranks(share), strict=True)
        )

    share = _bisected(cost, budget, small=0.0, large=1.0)
    return {
        layer.name: clustered_layers(layer.module, CLUSTERS, rank)
        for layer, rank in zip(layers, ranks(share), strict=True)
        if rank is not None
    }


def cluster_rank(layer: Layer, share: float) -> int | None:
    """Return the dimension of every subspace at a share of the FLOPs; None if not factored."""
    rank = max(1, int(share * layer.full_cost / _cluster_cost(layer)))
    return rank if share < 1 and rank * _cluster_cost(layer) < layer.full_cost else None


def _cluster_cost(layer: Layer) -> int:
    """Return the multiplications per dimension of the subspaces of all clusters."""
    weight = layer.module.weight
    return (CLUSTERS * weight[0].numel() + len(weight)) * layer.positions


class SlicedLayer:
    """The errors and costs of a layer for every number of slices and every rank."""

    def __init__(self, layer: Layer) -> None:
        self.full_cost, self._positions = layer.full_cost, layer.positions
        W = layer.matrix
        self._outputs, self._inputs = W.shape
        channels = layer.module.weight.shape[1]
        self.slices = [k for k in SLICES if channels % k == 0]
        norm = float(torch.linalg.matrix_norm(W, 2).clamp(min=1e-300))
        self._bounds = {}
        for k in self.slices:
            values = torch.linalg.svdvals(torch.stack(W.chunk(k, 1)))  # (k, modes)
            self._bounds[k] = (k**0.5 * values.amax(0) / norm).cpu()

    def cost_per_rank(self, slices: int) -> int:
        """Return the multiplications per rank."""
        return (self._outputs * slices + self._inputs) * self._positions

    def cost(self, slices: int, rank: int | None) -> int:
        """Return the multiplications; of the whole layer if it is not factored."""
        return self.full_cost if rank is None else rank * self.cost_per_rank(slices)

    def bound(self, slices: int, rank: int | None) -> float:
        """Return the bound of the relative error."""
        bounds = self._bounds[slices]
        return 0.0 if rank is None or rank >= len(bounds) else float(bounds[rank])

    def rank_within(self, slices: int, bound: float) -> int | None:
        """Return the smallest rank with an error of at most a bound; None for the whole layer."""
        rank = max(1, int((self._bounds[slices] > bound).sum()))
        return rank if self.cost(slices, rank) < self.full_cost else None

    def rank_at(self, slices: int, cost: float) -> int | None:
        """Return the largest rank of at most this cost; None if no rank is that cheap."""
        return int(cost // self.cost_per_rank(slices)) or None


Choice = tuple[int, int | None]
"""The number of slices of a layer and the rank of each; None for a layer that is not factored."""


def choose_slices(layers: Sequence[SlicedLayer], budget: float) -> list[Choice]:
    """Return slices and ranks of all layers with the smallest largest bound within a budget."""
    generator = torch.Generator().manual_seed(0)
    best: tuple[float, list[Choice]] | None = None
    for start in range(_STARTS):
        slices = [
            layer.slices[int(torch.randint(len(layer.slices), (1,), generator=generator))]
            if start else 1
            for layer in layers
        ]  # fmt: skip
        smallest = sum(
            min(one.cost(k, 1), one.full_cost) for one, k in zip(layers, slices, strict=True)
        )
        if start and smallest > budget:
            continue  # many slices need many outputs even at rank 1
        for _ in range(_ROUNDS):
            ranks = _ranks_of_one_bound(layers, slices, budget)
            better = [_best_slices(*one) for one in zip(layers, slices, ranks, strict=True)]
            if better == slices:
                break
            slices = better
        choices = list(zip(slices, _ranks_of_one_bound(layers, slices, budget), strict=True))
        largest = max(one.bound(*choice) for one, choice in zip(layers, choices, strict=True))
        if best is None or largest < best[0]:
            best = (largest, choices)
    assert best is not None
    return best[1]


def _ranks_of_one_bound(
    layers: Sequence[SlicedLayer], slices: Sequence[int], budget: float
) -> list[int | None]:
    """Return the ranks of the smallest common bound that the budget allows (the global step)."""

    def ranks(bound: float) -> list[int | None]:
        return [layer.rank_within(k, bound) for layer, k in zip(layers, slices, strict=True)]

    def cost(bound: float) -> float:
        return sum(
            layer.cost(k, rank) for layer, k, rank in zip(layers, slices, ranks(bound), strict=True)
        )

    return ranks(_bisected(cost, budget, small=float(max(SLICES)), large=0.0))


def _best_slices(layer: SlicedLayer, slices: int, rank: int | None) -> int:
    """Return the number of slices with the smallest bound at the same cost (the local step)."""
    if rank is None:
        return slices
    cost = layer.cost(slices, rank)
    ranks = {k: layer.rank_at(k, cost) for k in layer.slices}
    bounds = {k: layer.bound(k, rank) for k, rank in ranks.items() if rank is not None}
    return min(bounds, key=lambda k: (bounds[k], k != slices))


def _bisected(
    cost: Callable[[float], float], budget: float, *, small: float, large: float
) -> float:
    """Return the parameter closest to `large` whose cost is within the budget.

    The cost grows from `small`, the parameter of the smallest networks, to `large`.
    """
    if cost(small) > budget:
        raise RuntimeError("the budget is too small: even at rank 1 the layers cost more than that")
    for _ in range(_BISECTIONS):
        middle = (small + large) / 2
        if cost(middle) <= budget:
            small = middle
        else:
            large = middle
    return small

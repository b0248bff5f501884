"""The layers that replace a layer whose weight was split into several subspaces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Layer = nn.Conv2d | nn.Linear
_STARTS = 5  # of the clustering, each from random clusters
_ROUNDS = 30  # of assigning rows and fitting subspaces


class GroupedLinear(nn.Module):
    """A linear layer without bias, whose inputs and outputs are cut into groups."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        """(groups, outputs of a group, inputs of a group)"""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all groups, one after the other."""
        by_group = x.unflatten(-1, (len(self.weight), -1))
        return torch.einsum("...gi,goi->...go", by_group, self.weight).flatten(-2)


class Clustered(nn.Module):
    """A layer whose outputs fall into clusters; each reads its own part of the first layer's."""

    def __init__(self, first: nn.Module, seconds: list[Layer], order: Tensor) -> None:
        super().__init__()
        self.first = first
        self.seconds = nn.ModuleList(seconds)
        self.order: Tensor
        self.register_buffer("order", order)
        self._ranks = [second.weight.shape[1] for second in seconds]
        self._dim = -1 if isinstance(first, nn.Linear) else 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs in the order of the layer that this one replaces."""
        parts = self.first(x).split(self._ranks, self._dim)
        outputs = [second(part) for second, part in zip(self.seconds, parts, strict=True)]
        return torch.cat(outputs, self._dim).index_select(self._dim, self.order)


def sliced_layers(module: Layer, slices: int, rank: int) -> nn.Sequential:
    """Return the two layers of ALDS: `W_i ~= A_i @ B_i` for every slice of the input channels."""
    W = module.weight.detach().flatten(1).double()
    U, S, V = torch.linalg.svd(torch.stack(W.chunk(slices, 1)), full_matrices=False)
    B = V[:, :rank]  # (slices, rank, inputs of a slice)
    A = (U * S[:, None])[:, :, :rank].movedim(0, 1).flatten(1)  # (outputs, slices * rank)
    first: nn.Module
    if isinstance(module, nn.Linear) and slices > 1:
        first = GroupedLinear(B.to(module.weight))
    else:
        first = _first_layer(module, B.flatten(0, 1), slices)
    return nn.Sequential(first, _second_layer(module, A, module.bias))


def clustered_layers(module: Layer, clusters: int, rank: int) -> nn.Module:
    """Return the layers of Messi: `W_c ~= A_c @ B_c` for the rows of every cluster."""
    W = module.weight.detach().flatten(1).double()
    cluster_of = cluster_rows(W, clusters, rank)
    members = [torch.nonzero(cluster_of == c).reshape(-1) for c in cluster_of.unique()]
    bases, seconds = [], []
    for rows in members:
        U, S, V = torch.linalg.svd(W[rows], full_matrices=False)
        bases.append(V[:rank])
        bias = None if module.bias is None else module.bias.detach()[rows]
        seconds.append(_second_layer(module, (U * S)[:, :rank], bias))
    order = torch.cat(members).argsort()
    return Clustered(_first_layer(module, torch.cat(bases), 1), seconds, order)


def cluster_rows(W: Tensor, clusters: int, rank: int) -> Tensor:
    """Return the cluster of every row, so that clusters lie close to subspaces of a dimension.

    Lloyd's iteration: fit a subspace to every cluster, then move each row to the closest subspace.
    The best of several random starts is returned.
    """
    if clusters == 1:
        return torch.zeros(len(W), dtype=torch.long, device=W.device)
    generator = torch.Generator().manual_seed(0)
    U, S, _ = torch.linalg.svd(W, full_matrices=False)
    rows = U * S  # the same distances in fewer coordinates
    best, smallest = torch.zeros(len(W), dtype=torch.long), float("inf")
    for _ in range(_STARTS):
        cluster_of = torch.randint(clusters, (len(W),), generator=generator).to(W.device)
        for _ in range(_ROUNDS):
            distances = _squared_distances(rows, cluster_of, clusters, rank)
            closest = distances.argmin(1)
            if torch.equal(closest, cluster_of):
                break
            cluster_of = closest
        error = float(_squared_distances(rows, cluster_of, clusters, rank)
                      .gather(1, cluster_of[:, None]).sum())  # fmt: skip
        if error < smallest:
            best, smallest = cluster_of, error
    return best


def _squared_distances(rows: Tensor, cluster_of: Tensor, clusters: int, rank: int) -> Tensor:
    """Return (rows, clusters) squared distances to the subspace that fits each cluster best."""
    distances = rows.new_full((len(rows), clusters), float("inf"))  # an empty cluster stays so
    sizes = rows.square().sum(1)
    for c in range(clusters):
        members = rows[cluster_of == c]
        if len(members):
            V = torch.linalg.svd(members, full_matrices=False)[2][:rank]
            distances[:, c] = sizes - (rows @ V.T).square().sum(1)
    return distances


def _first_layer(module: Layer, B: Tensor, groups: int) -> nn.Module:
    """Return the layer with the kernel of the original and the rows of `B` as its filters."""
    like: Any = {"device": module.weight.device, "dtype": module.weight.dtype}
    layer: Layer
    if isinstance(module, nn.Linear):
        layer = nn.Linear(module.in_features, len(B), bias=False, **like)
    else:
        names = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        same: Any = {name: getattr(module, name) for name in names}
        layer = nn.Conv2d(
            module.in_channels, len(B), groups=groups, bias=False, **same, **like
        )  # fmt: skip
    return _filled(layer, B, None)


def _second_layer(module: Layer, A: Tensor, bias: Tensor | None) -> Layer:
    """Return the linear layer or 1 x 1 convolution of `A`, with a bias."""
    like: Any = {"device": module.weight.device, "dtype": module.weight.dtype}
    layer: Layer
    if isinstance(module, nn.Linear):
        layer = nn.Linear(A.shape[1], len(A), bias is not None, **like)
    else:
        layer = nn.Conv2d(A.shape[1], len(A), 1, bias=bias is not None, **like)
    return _filled(layer, A, bias)


def _filled(layer: Layer, weight: Tensor, bias: Tensor | None) -> Layer:
    with torch.no_grad():
        layer.weight.copy_(weight.reshape(layer.weight.shape))
        if bias is not None:
            assert layer.bias is not None
            layer.bias.copy_(bias)
    return layer

"""Thres: single weights of small magnitude become zero, in the whole network at once.

The weights of all convolutions and linear layers are ranked together by `|w|`, and the largest are
kept. All shapes stay, so the FLOPs and the memory of a dense network stay as well; only a sparse
format and sparse kernels would gain from the zeros. (In the paper's table "Thres" is magnitude
pruning of single weights; Renda, Frankle and Carbin, ICLR 2020, describe the global variant.)
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def dense_weights(model: nn.Module) -> list[Tensor]:
    """Return the weights of all convolutions and linear layers."""
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    return [module.weight for module in model.modules() if isinstance(module, kinds)]


def nonzeros(model: nn.Module) -> int:
    """Return how many of these weights are not zero."""
    return sum(int(weight.count_nonzero()) for weight in dense_weights(model))


def threshold(model: nn.Module, count: int) -> nn.Module:
    """Return a copy in which only the `count` largest weights are not zero."""
    sparse = copy.deepcopy(model)
    weights = dense_weights(sparse)
    sizes = torch.cat([weight.detach().abs().reshape(-1) for weight in weights])
    is_kept = torch.zeros(len(sizes), dtype=torch.bool, device=sizes.device)
    is_kept[sizes.topk(count).indices] = True
    with torch.no_grad():
        for weight, mask in zip(weights, is_kept.split([w.numel() for w in weights]), strict=True):
            weight.mul_(mask.reshape(weight.shape))
    return sparse

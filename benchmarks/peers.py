"""Torch-Pruning on the same networks, data and FLOPs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from interpress.demo import flops

IMPORTANCES = ("L1", "group L1", "group L2", "group L2, global")
_PROBES = 8


def available() -> bool:
    """Whether Torch-Pruning is installed."""
    import importlib.util

    return importlib.util.find_spec("torch_pruning") is not None


def torch_pruning(
    model: nn.Module, example: Tensor, importance: str, keep: float, ignored: Sequence[str] = ()
) -> nn.Module:
    """The largest network it makes with at most so much of the FLOPs, by bisection of its ratio."""
    whole = flops(model, example)
    low, high = 0.0, 1.0  # low keeps too much, high is small enough
    best: nn.Module | None = None
    for _ in range(_PROBES):
        ratio = (low + high) / 2
        smaller = _pruned(model, example, importance, ratio, ignored)
        if flops(smaller, example) <= keep * whole:
            best, high = smaller, ratio
        else:
            low = ratio
    if best is None:
        raise RuntimeError(f"Torch-Pruning ({importance}) did not reach {keep:.0%} of the FLOPs")
    return best


def _pruned(
    model: nn.Module, example: Tensor, importance: str, ratio: float, ignored: Sequence[str]
) -> nn.Module:
    import torch_pruning as peer

    smaller = copy.deepcopy(model)
    for parameter in smaller.parameters():
        parameter.requires_grad_(True)  # it does nothing otherwise
    score: Any = {
        "L1": lambda: peer.importance.MagnitudeImportance(p=1, group_reduction="first"),
        "group L1": lambda: peer.importance.MagnitudeImportance(p=1),
        "group L2": lambda: peer.importance.GroupMagnitudeImportance(p=2),
        "group L2, global": lambda: peer.importance.GroupMagnitudeImportance(p=2),
    }[importance]()
    last = [module for module in smaller.modules() if isinstance(module, nn.Linear)][-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.pruner.BasePruner(
            smaller,
            example,
            importance=score,
            pruning_ratio=ratio,
            global_pruning=importance.endswith("global"),
            max_pruning_ratio=0.95,  # so that no layer vanishes
            ignored_layers=[last, *map(smaller.get_submodule, ignored)],
        ).step()
    return smaller.eval()


def recalibrated(model: nn.Module, images: Tensor, batch: int = 250) -> nn.Module:
    """A copy whose batch norms have seen the calibration images again."""
    fresh = copy.deepcopy(model)
    norms = [m for m in fresh.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    device = next(fresh.parameters()).device
    with torch.no_grad():
        for some in images.split(batch):
            fresh(some.to(device))
    return fresh.eval()

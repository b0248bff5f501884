"""Torch-Pruning on the same networks and images, at the same FLOPs."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from interpress.demo import flops

IMPORTANCES = ("L1", "group L1", "group L2", "group L2, global")
_BISECTIONS = 8  # locates the pruning ratio to within 0.4 %


def available() -> bool:
    """Return whether Torch-Pruning is installed."""
    return importlib.util.find_spec("torch_pruning") is not None


def torch_pruning(
    model: nn.Module, example: Tensor, importance: str, keep: float, ignored: Sequence[str] = ()
) -> nn.Module:
    """Return the largest network that Torch-Pruning makes with at most `keep` of the FLOPs.

    Its pruning ratio is found by bisection. `ignored` are names of layers to leave unchanged.
    """
    original_flops = flops(model, example)
    too_large, small_enough = 0.0, 1.0  # pruning ratios
    best: nn.Module | None = None
    for _ in range(_BISECTIONS):
        ratio = (too_large + small_enough) / 2
        smaller = _prune(model, example, importance, ratio, ignored)
        if flops(smaller, example) <= keep * original_flops:
            best, small_enough = smaller, ratio
        else:
            too_large = ratio
    if best is None:
        raise RuntimeError(f"Torch-Pruning ({importance}) did not reach {keep:.0%} of the FLOPs")
    return best


def _prune(
    model: nn.Module, example: Tensor, importance: str, ratio: float, ignored: Sequence[str]
) -> nn.Module:
    import torch_pruning

    smaller = copy.deepcopy(model)
    for parameter in smaller.parameters():
        parameter.requires_grad_(True)  # Torch-Pruning skips parameters without gradients
    score: Any = {
        "L1": lambda: torch_pruning.importance.MagnitudeImportance(p=1, group_reduction="first"),
        "group L1": lambda: torch_pruning.importance.MagnitudeImportance(p=1),
        "group L2": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
        "group L2, global": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
    }[importance]()
    classifier = [module for module in smaller.modules() if isinstance(module, nn.Linear)][-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_pruning.pruner.BasePruner(
            smaller,
            example,
            importance=score,
            pruning_ratio=ratio,
            global_pruning=importance.endswith("global"),
            max_pruning_ratio=0.95,  # with a global ranking a layer could lose all its channels
            ignored_layers=[classifier, *map(smaller.get_submodule, ignored)],
        ).step()
    return smaller.eval()


def recalibrate_batch_norms(model: nn.Module, images: Tensor, batch: int = 250) -> nn.Module:
    """Return a copy whose batch norms have the statistics of these images."""
    copied = copy.deepcopy(model)
    norms = [m for m in copied.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over all batches
        norm.train()
    device = next(copied.parameters()).device
    with torch.no_grad():
        for batch_images in images.split(batch):
            copied(batch_images.to(device))
    return copied.eval()

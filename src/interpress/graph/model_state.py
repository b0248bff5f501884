"""Run a user's model without leaving traces: modes, buffers and random state are restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError
from interpress.graph.example import Example


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside `torch.compile`, `DataParallel` and DDP wrappers."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


@contextlib.contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Switch all modules to evaluation mode; restore each module's own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        for module, _ in modes:
            module.training = False
        # fused attention kernels would hide the operators from torch.export
        torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore the global random state and the model's buffers afterwards."""
    devices = {t.device.index or 0 for t in model.parameters() if t.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)), restored_buffers(model):
        yield


@contextlib.contextmanager
def restored_buffers(model: nn.Module) -> Iterator[None]:
    """Give buffers that a forward writes into their old values back."""
    before = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        yield
    finally:
        for buffer, value in before.items():
            if not torch.equal(buffer, value):
                buffer.copy_(value)


def output_tensors(model: nn.Module, example: Example) -> list[Tensor]:
    """Return the tensors that a model returns on an example, in evaluation mode."""
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]

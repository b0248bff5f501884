"""Run a user's model without leaving traces: modes, buffers and random state are restored."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError
from interpress.graph.example import Example
from interpress.graph.global_settings import attention_fast_path, cpu_by_default
from interpress.graph.restoring import finish
from interpress.graph.snapshot import Snapshot


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside `torch.compile`, `DataParallel` and DDP wrappers."""
    if isinstance(model, type):
        name = model.__name__
        raise ArgumentError(f"model is the class {name}; pass an instance: {name}(...)")
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_lock_of_locks = threading.Lock()


def _lock_of(model: nn.Module) -> threading.RLock:
    with _lock_of_locks:
        return _locks.setdefault(model, threading.RLock())


@contextlib.contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Run the body with all modules in evaluation mode, and undo what it changes.

    Afterwards every module has its own mode again, and parameters, buffers and attributes that a
    forward wrote have their old values. One thread at a time runs a model: torch.export and the
    switch of modes change the model that other threads would see.
    """
    with _lock_of(model), attention_fast_path.set_to(False):
        snapshot = Snapshot(model)  # it includes the modes
        try:
            for module in model.modules():
                module.training = False
            yield
        finally:
            finish(snapshot.restore)


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore the global random state and the model's state afterwards.

    The body runs outside `torch.inference_mode`, so that networks it makes can be trained, and
    outside `torch.autocast`, so that its own arithmetic keeps its precision. Threads
    that work on the same model wait for each other.
    """
    devices = {t.device.index or 0 for t in model.parameters() if t.is_cuda}
    with (
        _lock_of(model),
        torch.inference_mode(False),
        without_autocast(),
        cpu_by_default(),
        torch.random.fork_rng(devices=sorted(devices)),
    ):
        snapshot = Snapshot(model)
        try:
            yield
        finally:
            finish(snapshot.restore)


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Run the body outside of the autocast regions that surround a call."""
    with contextlib.ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def output_tensors(model: nn.Module, example: Example) -> list[Tensor]:
    """Return the tensors that a model returns on an example, in evaluation mode."""
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]

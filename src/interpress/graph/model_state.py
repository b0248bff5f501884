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
from interpress.graph.global_settings import attention_fast_path
from interpress.graph.restoring import finish
from interpress.graph.snapshot import Snapshot


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


class _Running:
    """A model in evaluation mode, and how many callers need it so."""

    def __init__(self, model: nn.Module) -> None:
        self.callers = 0
        self._modes = [(module, module.training) for module in model.modules()]
        self._snapshot = Snapshot(model)

    def start(self) -> None:
        """Switch all modules to evaluation mode."""
        for module, _ in self._modes:
            module.training = False

    def restore(self) -> None:
        """Restore the state and each module's own mode."""
        self._snapshot.restore()
        for module, mode in self._modes:
            module.training = mode


_running: weakref.WeakKeyDictionary[nn.Module, _Running] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


@contextlib.contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Run the body with all modules in evaluation mode, and undo what it changes.

    Afterwards every module has its own mode again, and parameters, buffers and attributes that a
    forward wrote have their old values. If several threads use one model, the last one restores.
    """
    entered = False
    try:
        with _lock:
            running = _running.get(model) or _running.setdefault(model, _Running(model))
            running.callers += 1
            entered = True
            running.start()
        with attention_fast_path.set_to(False):
            yield
    finally:
        if entered:
            left = [False]
            finish(lambda: _leave(model, running, left))


def _leave(model: nn.Module, running: _Running, left: list[bool]) -> None:
    with _lock:
        if not left[0]:
            left[0] = True
            running.callers -= 1
        if running.callers == 0:
            running.restore()
            _running.pop(model, None)


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore the global random state and the model's state afterwards."""
    devices = {t.device.index or 0 for t in model.parameters() if t.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)):
        snapshot = Snapshot(model)
        try:
            yield
        finally:
            finish(snapshot.restore)


def output_tensors(model: nn.Module, example: Example) -> list[Tensor]:
    """Return the tensors that a model returns on an example, in evaluation mode."""
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]

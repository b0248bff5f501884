"""Settings of the whole process that several threads may need at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch
from torch import fx

from interpress.graph.restoring import finish

T = TypeVar("T")


class SharedSetting(Generic[T]):
    """A process-wide setting that is changed while at least one thread needs it.

    The first thread saves the user's value, the last one restores it. Saving and restoring in every
    thread by itself would end with one thread's temporary value.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object]) -> None:
        self._read, self._write = read, write
        self._lock = threading.Lock()
        self._users = 0
        self._saved: T | None = None

    @contextlib.contextmanager
    def set_to(self, value: T) -> Iterator[None]:
        """Give the setting a value; all threads that are inside must agree on it."""
        entered = False
        try:
            with self._lock:
                if self._users == 0:
                    self._saved = self._read()
                self._users += 1
                entered = True
                self._write(value)
            yield
        finally:
            if entered:
                left = [False]
                finish(lambda: self._leave(left))

    def _leave(self, left: list[bool]) -> None:
        with self._lock:
            if not left[0]:
                left[0] = True
                self._users -= 1
            if self._users == 0:
                assert self._saved is not None
                self._write(self._saved)


attention_fast_path: SharedSetting[bool] = SharedSetting(
    torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled
)
"""Whether attention runs as one fused kernel, which hides its operators from torch.export."""
default_dtype: SharedSetting[torch.dtype] = SharedSetting(
    torch.get_default_dtype, torch.set_default_dtype
)
"""The dtype of tensors that a model creates without naming one."""
_STACK_TRACES = "do_not_emit_stack_traces"


def _set_without_stack_traces(value: bool) -> None:
    if hasattr(fx.config, _STACK_TRACES):
        setattr(fx.config, _STACK_TRACES, value)


without_stack_traces: SharedSetting[bool] = SharedSetting(
    lambda: bool(getattr(fx.config, _STACK_TRACES, False)), _set_without_stack_traces
)
"""Whether torch.export leaves out where in the code every operator was called, which takes a tenth
of its time. Older versions of torch cannot."""

_users_device: ContextVar[torch.device | None] = ContextVar("users_device", default=None)


@contextlib.contextmanager
def cpu_by_default() -> Iterator[None]:
    """Create tensors on the CPU, whatever `torch.set_default_device` says, but for the model."""
    device = torch.get_default_device()
    if device.type == "cpu":
        yield
        return
    token = _users_device.set(device)
    try:
        with torch.device("cpu"):
            yield
    finally:
        _users_device.reset(token)


@contextlib.contextmanager
def users_device() -> Iterator[None]:
    """Create tensors where the user's code would; for calls of the user's model."""
    device = _users_device.get()
    if device is None:
        yield
        return
    with device:
        yield

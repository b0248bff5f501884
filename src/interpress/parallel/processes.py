"""Several processes that work on one call together, through `torch.distributed`.

Every process makes the same calls in the same order. Before any exchange the processes meet in the
store of the process group. A process that fails says so there, and the others raise its message
instead of waiting for it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from interpress.errors import InterpressError

Value = TypeVar("Value")
_PAUSE = 0.002  # seconds between two looks at who has arrived


class Processes:
    """The processes of the default process group, or this one alone."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def gathered(self, value: Value) -> list[Value]:
        """Return the values of all processes, in their order."""
        if self.size == 1:
            return [value]
        self._meet()
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_process(self, rank: int, value: Value | None) -> Value:
        """Return the value that one process has; the others pass None."""
        if self.size == 1:
            assert value is not None
            return value
        self._meet()
        values = [value]
        dist.broadcast_object_list(values, src=rank)
        assert values[0] is not None
        return values[0]

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of process 0."""
        if self.size == 1:
            return
        self._meet()
        with torch.no_grad():
            for tensor in tensors:
                value = tensor.detach().contiguous()
                dist.broadcast(value, src=0)
                tensor.copy_(value)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with their means over all processes."""
        if self.size == 1:
            return
        self._meet()
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor /= self.size

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run the body in all processes; if it fails in one of them, it fails in all."""
        if self.size == 1:
            yield
            return
        with _CALLS.entered():
            try:
                yield
            except _Elsewhere:
                raise
            except BaseException as problem:
                message = f"{self.rank} {type(problem).__name__}: {problem}"
                _store().set(_CALLS.key("failed"), message.encode())
                raise

    def _meet(self) -> None:
        """Wait until all processes are here; raise if one of them has failed."""
        store, failed = _store(), _CALLS.key("failed")
        _CALLS.meetings += 1
        key = _CALLS.key(str(_CALLS.meetings))
        store.add(key, 1)
        while store.add(key, 0) < self.size:
            if store.check([failed]):
                rank, _, message = store.get(failed).decode().partition(" ")
                raise _Elsewhere(f"process {rank} failed: {message}")
            time.sleep(_PAUSE)


@contextlib.contextmanager
def process_group() -> Iterator[Processes]:
    """Join the other processes that torchrun started, if it did, and leave them afterwards."""
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if not started or dist.is_initialized():
        yield Processes()
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    processes = Processes()
    try:
        with processes.together():
            yield processes
            processes.gathered(None)  # so that none leaves while another still exchanges
    finally:
        dist.destroy_process_group()
        gc.collect()  # a group that is collected when the process ends can abort it


def check_same_widths(widths: Sequence[object]) -> None:
    """Raise if processes that had the same statistics chose different widths."""
    if any(other != widths[0] for other in widths):
        raise InterpressError(
            "the processes chose different widths from the same statistics; use the same versions "
            "of torch and the same kind of device in all of them"
        )


class _Elsewhere(InterpressError):
    """The failure of another process."""


class _Calls:
    """Which call of the user the processes are in, and how often they have met in it."""

    number = depth = meetings = 0

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Begin a call, unless this happens inside another one."""
        if self.depth == 0:
            self.number, self.meetings = self.number + 1, 0
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def key(self, name: str) -> str:
        """Return a name in the store that only this call uses."""
        return f"interpress/{self.number}/{name}"


_CALLS = _Calls()


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()

"""Measure what one run of a network costs: seconds, and the peak of its activations.

The peak is measured, not computed: every tensor that an operator returns counts from its creation
until its memory is free again. Working memory inside an operator is not seen.
"""

from __future__ import annotations

import weakref
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from interpress.data.batches import batch_size
from interpress.evaluation.latency import run_times
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation


@dataclass(frozen=True)
class RunCost:
    """Seconds and memory of one run on a batch, of the original and of the smaller network."""

    seconds: tuple[float, float]
    """Of one run: the median of the original, and that times `ratio` for the smaller network."""
    ratio: float
    """The run time of the smaller network relative to the original's: the median of pairs."""
    quartiles: tuple[float, float]
    """The lower and the upper quartile of the ratios of these pairs."""
    activation_bytes: tuple[int, int] | None
    """Peak bytes of tensors that a run creates; None if the networks cannot be watched."""
    examples: int
    """Examples in the batch."""
    rounds: int
    device: str
    threads: int

    def record(self) -> dict[str, Any]:
        """Return what a file says about it."""
        return asdict(self)


def run_cost(smaller: nn.Module, original: nn.Module, example: Example) -> RunCost:
    """Return what a run on one batch costs; the networks run in turn."""
    times = run_times(smaller, original, example)
    try:
        peaks = (peak_activations(original, example), peak_activations(smaller, example))
    except Exception:  # the user's own operators may not run under a dispatch mode
        peaks = None
    device = next((str(tensor.device) for tensor in example.tensors()), "cpu")
    count = batch_size(example)
    return RunCost(
        times.seconds, times.ratio, times.quartiles, peaks, count, times.rounds, device,
        torch.get_num_threads(),
    )  # fmt: skip


def peak_activations(model: nn.Module, example: Example) -> int:
    """Return the most bytes of tensors that exist at once during a run, weights and inputs aside.

    The outputs count.
    """
    given = [*model.parameters(), *model.buffers(), *example.tensors()]
    with evaluation(model), torch.no_grad(), _Watch(given) as watch:
        example.call(model)
    return watch.peak


class _Watch(TorchDispatchMode):
    """Counts the bytes of the storages that operators create, and forgets those that are freed."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known = weakref.WeakSet(tensor.untyped_storage() for tensor in given)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._release, size).atexit = False

    def _release(self, size: int) -> None:
        self.held -= size

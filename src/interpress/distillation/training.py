"""The loop of a distillation: steps, checks on held-out examples, and the best weights so far.

It is safe by construction. Steps are small, relative to the weights. If held-out examples get worse
than at the start, the best weights come back and the steps get smaller. The trained weights are
used only if held-out examples are clearly better with them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interpress.distillation.inputs import Inputs
from interpress.distillation.options import Limit
from interpress.distillation.pair import HeldOut, Pair
from interpress.distillation.record import Distillation
from interpress.distillation.recorded import Gradients
from interpress.distillation.steps import Steps
from interpress.files.checkpoint import Checkpoint
from interpress.parallel.processes import Processes
from interpress.progress import Display

_PART = "distillation"
_CHECKS = 20
"""How often held-out examples are looked at, if that is quick."""
_TIME_FOR_CHECKS = 0.15
"""The part of the time that these looks may take."""
_SETBACKS = 3
"""Training ends after this many setbacks; each returns to the best weights with smaller steps."""
_TOLERATED = 1.5
"""Large steps raise the loss at first, and smaller ones lower it again. So the loss of held-out
examples may be this much above that of the start, and less and less up to the middle of the run."""


class Training:
    """One run: the weights now, the best so far, and what held-out examples say about them."""

    def __init__(self, pair: Pair, held: HeldOut, limit: Limit) -> None:
        self._held, self._limit = held, limit
        self._gradients = Gradients(pair)
        self._steps = Steps(pair.smaller)
        self._processes = Processes()
        self._done = self._setbacks = 0
        self._seconds = 0.0
        begun = time.monotonic()
        self._start = self._best = held.losses()
        self._check_seconds = time.monotonic() - begun
        self._best_weights = self._steps.state()
        self._looked_at = 0.0
        self.reason = ""

    def run(self, inputs: Inputs, size: int, checkpoint: Checkpoint, bars: Display) -> Distillation:
        """Train to the limit, leave the best weights in the network, and say what was done."""
        self._resume(checkpoint)
        with bars.task("distilling", 1.0) as advance:
            advance(self._limit.part(self._seconds, self._done))
            try:
                self._train(inputs, size, checkpoint, advance)
            except KeyboardInterrupt:
                if self._processes.size > 1:
                    raise
                self.reason = "interrupted"
        return self._finish()

    def _train(self, inputs: Inputs, size: int, checkpoint: Checkpoint, advance: Any) -> None:
        before = time.monotonic() - self._seconds
        part = self._limit.part(self._seconds, self._done)
        number = self._done * self._processes.size + self._processes.rank
        batches = inputs.batches(size, number)
        while part < 1.0 and self._setbacks < _SETBACKS:
            self._gradients.add(next(batches))
            for _ in range(self._processes.size - 1):
                next(batches)
            self._processes.average(self._steps.gradients())
            self._steps.step(part)
            self._done += 1
            self._seconds = self._processes.from_process(0, time.monotonic() - before)
            now = self._limit.part(self._seconds, self._done)
            advance(now - part)
            part = now
            if part >= 1.0 or part - self._looked_at >= self._distance():
                self._looked_at = part
                self._look()
                self._save(checkpoint)

    def _distance(self) -> float:
        """Return the part of the run between two looks at the held-out examples."""
        per_step = self._seconds / self._done
        if self._limit.seconds is not None:
            total = self._limit.seconds
        else:
            assert self._limit.steps is not None
            total = self._limit.steps * per_step
        affordable = _TIME_FOR_CHECKS * total / max(self._check_seconds, 1e-9)
        return 1.0 / max(2.0, min(_CHECKS, affordable))

    def _look(self) -> None:
        """Look at held-out examples; remember the best weights, and return to them if worse."""
        losses = self._held.losses()
        better = bool(losses.mean() < self._best.mean())
        tolerated = max(1.0, _TOLERATED - (_TOLERATED - 1) * 2 * self._looked_at)
        # the comparison is also true if the loss is not a number
        worse = not bool(losses.mean() <= tolerated * self._start.mean())
        better, worse = self._processes.from_process(0, (better, worse))
        if better:
            self._best, self._best_weights = losses, self._steps.state()
        elif worse:
            self._setbacks += 1
            self._steps.restore(self._best_weights)
            self._steps.lower()

    def _finish(self) -> Distillation:
        """Leave the best weights in the network."""
        self._steps.restore(self._best_weights)
        gain = self._start - self._best
        error = float(gain.std()) / len(gain) ** 0.5 if len(gain) > 1 else 0.0
        clearly = self._processes.from_process(0, (float(gain.mean()) > error,))[0]
        if not clearly:
            why = "held-out examples did not get clearly better"
            self.reason = f"{self.reason}, and {why}" if self.reason else why
        elif self._setbacks == _SETBACKS:
            self.reason = "it ended early, because held-out examples got worse"
        return Distillation(
            self._done, self._seconds, float(self._start.mean()), float(self._best.mean()),
            clearly, self.reason,
        )  # fmt: skip

    def _save(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.is_kept:
            return
        tensors = {f"best.{n}": tensor for n, tensor in enumerate(self._best_weights)}
        tensors |= {"losses.0": self._start, "losses.1": self._best.clone()}
        tensors |= self._steps.checkpoint()
        record = {
            "done": self._done, "seconds": self._seconds, "setbacks": self._setbacks,
            "looked_at": self._looked_at, "scale": self._steps.scale,
        }  # fmt: skip
        checkpoint.save(_PART, tensors, record)

    def _resume(self, checkpoint: Checkpoint) -> None:
        saved = checkpoint.load(_PART)
        if saved is None:
            return
        tensors, record = saved.tensors, saved.record
        self._best_weights = _numbered(tensors, "best", self._best_weights)
        self._start, self._best = _numbered(tensors, "losses", [self._start, self._best])
        self._done, self._seconds = record["done"], record["seconds"]
        self._setbacks, self._looked_at = record["setbacks"], record["looked_at"]
        self._steps.resume(tensors, record["scale"])


def _numbered(tensors: Mapping[str, Tensor], name: str, like: list[Tensor]) -> list[Tensor]:
    """Return saved tensors, where the given ones live."""
    with torch.no_grad():
        return [tensors[f"{name}.{n}"].to(old) for n, old in enumerate(like)]

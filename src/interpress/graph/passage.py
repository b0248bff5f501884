"""One network on some batches, run from one block to the next.

Between two blocks only the values that later blocks need are alive. They may rest on another device
than the one that computes, so that a small device can run a large calibration set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.example import Example
from interpress.graph.executor import Executor, Frame
from interpress.graph.program import Program

Hooks = Callable[[int], dict[str, Any]]
"""From the number of a batch to the arguments `before`, `after` and `protected` of `advance`."""


@dataclass(eq=False)
class Passage:
    """The frames of all batches, at the border between two blocks."""

    executor: Executor
    frames: list[Frame] = field(default_factory=list)
    rest: torch.device | None = None
    """Where values rest between blocks; None leaves them where they were computed."""

    @classmethod
    def begin(
        cls, executor: Executor, examples: Iterable[Example], rest: torch.device | None = None
    ) -> Passage:
        """Return a passage before the first block."""
        passage = cls(executor, rest=rest)
        for example in examples:
            frame = executor.frame(example)
            if rest is not None:
                frame.move(rest)
            passage.frames.append(frame)
        return passage

    def advance(self, nodes: Sequence[fx.Node], hooks: Hooks = lambda batch: {}) -> None:
        """Run a stretch of operators on all batches."""
        with self.executor.holding(nodes):
            for number, frame in enumerate(self.frames):
                with self.working(frame):
                    self.executor.advance(frame, nodes, **hooks(number))

    @contextlib.contextmanager
    def working(self, frame: Frame) -> Iterator[None]:
        """Have the values of one batch on the computing device while the body runs."""
        if self.rest is None:
            yield
            return
        device = self.executor.device
        assert device is not None
        frame.move(device)
        yield
        frame.move(self.rest)

    @property
    def group(self) -> tuple[Program, Sequence[Frame]]:
        """The program and its frames, to save and restore them."""
        return self.executor.program, self.frames

    def settle(self) -> None:
        """Move restored values to where values rest between blocks."""
        for frame in self.frames:
            frame.move(self.rest or self.executor.program.device)

    def branch(self) -> Passage:
        """Return a passage that goes on from here, and shares the values of this one."""
        return Passage(self.executor, [frame.branch() for frame in self.frames], self.rest)

    def outputs(self, number: int) -> list[Tensor]:
        """Return the output tensors of one batch that the last block has computed."""
        frame = self.frames[number]
        values = [frame[node] for node in self.executor.program.output_nodes() if node in frame]
        return [value for value in values if isinstance(value, Tensor)]

"""Which rows of a batch are taken, and to which example each of them belongs.

A row is one position of one example: a pixel of an image, a token of a text, or the whole example.
The choice depends on the number of the example and on its own positions only, so the same examples
give the same rows in batches of any size and length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = 0.6180339887498949  # steps of this size fill the unit interval evenly, in any order
_SQUARE_ROOT = 0.41421356237309515  # another irrational step, for the slots of one example


@dataclass(frozen=True, eq=False)
class BatchRows:
    """The examples of one batch."""

    examples: int
    first: int = 0
    """The number of its first example in the calibration set."""
    masks: tuple[Tensor, ...] = ()
    """Each (examples, positions...): which positions count."""
    seed: int = 0
    alone: bool = False
    """Whether there is only this one example in all, so that halves are halves of it."""

    def sample(self, rows: int, per_example: int) -> Tensor | None:
        """Return at most `per_example` row indices of every example; None means all rows.

        The rows of an example that count are divided into `per_example` intervals of equal length,
        and one row is drawn from each.
        """
        examples = self._examples_of(rows)
        length = rows // examples
        counts = self._counting(rows)
        if counts is None and length <= per_example:
            return None
        number = torch.arange(self.first, self.first + examples, dtype=torch.float64)
        slot = torch.arange(per_example, dtype=torch.float64)
        start = number * _GOLDEN + self.seed * _SQUARE_ROOT
        offset = (start[:, None] + slot * _SQUARE_ROOT) % 1.0
        if counts is None:
            at = ((slot + offset) * (length / per_example)).long().clamp(max=length - 1)
            return (at + length * torch.arange(examples)[:, None]).reshape(-1)
        available = counts.sum(1, keepdim=True)
        strata = ((slot + offset) * (available / per_example)).long()
        taken = torch.where(available <= per_example, slot.long(), strata)
        valid = taken < available
        order = torch.argsort((~counts).int(), dim=1, stable=True)
        at = order.gather(1, taken.clamp(max=length - 1))
        return (at + length * torch.arange(examples)[:, None])[valid]

    def halves(self, rows: int, at: Tensor | None) -> Tensor:
        """Return, per taken row, whether it belongs to the second half of the examples.

        Every other example is in the second half. A single example is cut in the middle.
        """
        index = torch.arange(rows) if at is None else at
        length = rows // self._examples_of(rows)
        if self.alone:
            return index % length >= length // 2 if length > 1 else index < 0
        return (index // length + self.first) % 2 == 1

    def counting(self, rows: int) -> Tensor | None:
        """Return, per row, whether it counts; None if all do."""
        counts = self._counting(rows)
        return None if counts is None else counts.reshape(-1)

    def _examples_of(self, rows: int) -> int:
        """Return the number of examples, or one if the rows do not divide among them."""
        return self.examples if rows and rows % self.examples == 0 else 1

    def _counting(self, rows: int) -> Tensor | None:
        """Return (examples, positions) which rows count, where rows are positions of the mask."""
        for mask in self.masks:
            if mask.numel() == rows and len(mask) == self.examples:
                return mask.reshape(self.examples, -1).bool().cpu()
        return None

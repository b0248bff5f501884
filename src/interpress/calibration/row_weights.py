"""How much the rows of a residual stream count, by their size.

A norm divides every row of the stream by its size, so errors are measured relative to it. But rows
of different sizes do not count alike. In many language models, the first token of a text is far
larger than the others, and all later tokens attend to it. A relative error of that row changes the
predictions much more than the same error of an ordinary row. So rows are divided into classes by
the binary logarithm of their size, and every class counts as much as the squared gradients of its
rows say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.graph.normalised import inverse_sizes

_SMALLEST = -24  # binary logarithm of the size of the first class
_CLASSES = 64
_PRIOR_ROWS = 4  # rows of the usual weight that are added to every class: a few rows say little
_LARGEST_SHARE = 1.0
"""Weight that one class may have in all, relative to all rows if they had the usual weight. The few
large rows are nearly equal, so they are fitted well with any weight that is not negligible. A
larger weight would only hide the errors of all other rows."""


@dataclass(frozen=True, eq=False)
class RowWeights:
    """The weight of every class of rows; most rows have a weight near one."""

    by_class: Tensor
    """(classes,) weights of squared errors, each relative to the size of its row."""

    def factors(self, stream: Tensor) -> Tensor:
        """Return (rows, 1): what to multiply the rows of an error by, from the stream they are in.

        It is one over the size of the row in `stream` (rows, channels), times the root of its
        weight.
        """
        inverse = inverse_sizes(stream)
        weights = self.by_class.to(inverse)[size_classes(inverse)]
        return inverse * weights.sqrt()[:, None]


def size_classes(inverse: Tensor) -> Tensor:
    """Return (rows,) the class of every row, from one over its size (rows, 1)."""
    logarithms = -inverse.reshape(-1).log2().round()
    return (logarithms.long() - _SMALLEST).clamp(0, _CLASSES - 1)


class ClassSums:
    """Sums squared gradients of rows, class by class."""

    def __init__(self) -> None:
        self._rows = torch.zeros(_CLASSES, dtype=torch.float64)
        self._squares = torch.zeros(_CLASSES, dtype=torch.float64)

    def add(self, squares: Tensor, inverse: Tensor) -> Tensor:
        """Add the squared relative gradients (rows,) of some rows.

        Return (rows,) the mean of every row's class so far.
        """
        classes = size_classes(inverse).cpu()
        self._rows.index_add_(0, classes, torch.ones(len(classes), dtype=torch.float64))
        self._squares.index_add_(0, classes, squares.cpu().double())
        return self._means()[classes].to(squares)

    def _means(self) -> Tensor:
        return (self._squares / self._rows.clamp(min=1)).clamp(min=1e-30)

    @property
    def usual(self) -> float:
        """The mean of the class that has most rows."""
        return float(self._means()[self._rows.argmax()])

    def weights(self) -> RowWeights:
        """Return the weight of every class relative to the usual one."""
        relative = self._means() / self.usual
        shrunk = (relative * self._rows + _PRIOR_ROWS) / (self._rows + _PRIOR_ROWS)
        largest = _LARGEST_SHARE * self._rows.sum() / self._rows.clamp(min=1)
        return RowWeights(torch.minimum(shrunk, largest.clamp(min=1.0)).float())

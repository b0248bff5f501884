"""How long dims of captured values become after a cut."""

from __future__ import annotations

from interpress.labels.trace import Value
from interpress.spaces.dim_sizes import labels_along, length, size_of
from interpress.surgery.cut import Cut


class NewLengths:
    """The lengths of dims, and of their beginnings, after a cut."""

    def __init__(self, cut: Cut) -> None:
        self._spaces = cut.spaces
        widths = {name: len(index) for name, index in cut.kept.items()}
        self._shares = cut.spaces.cost.shares(widths)

    def after(self, value: Value, dim: int) -> int:
        """Return the length of a dim. One that depends on the batch size stays."""
        return value.shape[dim] if dim in value.varying else self.with_batch(value, dim)

    def with_batch(self, value: Value, dim: int) -> int:
        """Return the length of a dim, for the batch size that was captured."""
        return self._spaces.cost.length(value, dim, self._shares)[0]

    def before(self, value: Value, dim: int, index: int) -> int:
        """Return how many of the first `index` positions of a dim are left."""
        labels = labels_along(value, dim)
        if labels is None or dim in value.varying:
            return index
        size = size_of(labels[:index], self._spaces.membership, self._spaces.all)
        return length(size, self._shares)

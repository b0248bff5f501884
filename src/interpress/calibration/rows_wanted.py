"""How many rows calibration takes of every example.

Moments need a few rows per unknown, whatever the size of the data. Rows of one example are
correlated: a few of many examples say more than many of a few.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS_PER_EXAMPLE = 16
"""Positions of an image, or tokens of a text, beyond which further ones of the same example are
highly correlated with those."""
ROWS_PER_CHANNEL = 8
"""Rows that a channel needs; if examples are few, more rows of each are taken."""
TOKENS_PER_CHANNEL = 64
"""The same for language models, whose errors on other texts still fall with this many tokens."""
PLENTY_PER_CHANNEL = 16
"""Rows of a channel from which fewer are taken of every example: then either half has so many that
no prior is needed (`Halves.many`), and more hardly change what is solved from them."""
ROWS_PER_INPUT = 4
"""Patches that an input of a consumer needs. Selections add a ridge to their moments, so they need
fewer than an interpolation."""
FEWEST_ROWS = 4096
"""Rows of a tap with few channels, if the examples have as many."""
_FEWEST_PER_EXAMPLE = 4


@dataclass(frozen=True)
class RowsWanted:
    """Numbers of rows per example."""

    expected: int | None
    """About how many examples there are; None if that is not known."""
    patches: bool
    """Whether the selection "patches" is prepared, which needs more rows."""
    of_tokens: bool
    """Whether the model is a language model."""

    def rows(self, channels: int) -> int:
        """Return how many rows of a tap with this many channels to take of every example."""
        if self.expected is None:
            return ROWS_PER_EXAMPLE
        per_channel = TOKENS_PER_CHANNEL if self.of_tokens else ROWS_PER_CHANNEL
        enough = max(_FEWEST_PER_EXAMPLE, self._each(max(per_channel * channels, FEWEST_ROWS)))
        if not self.patches:
            return enough
        if self.of_tokens:  # more tokens than are enough still lower the errors
            return max(enough, ROWS_PER_EXAMPLE)
        return max(enough, min(self._each(PLENTY_PER_CHANNEL * channels), ROWS_PER_EXAMPLE))

    def patches_of(self, inputs: int) -> int:
        """Return how many patches of this size to take of every example."""
        if self.expected is None:
            return ROWS_PER_EXAMPLE
        enough = self._each(ROWS_PER_INPUT * inputs)
        # beyond ROWS_PER_EXAMPLE, patches are correlated with the others, and count half
        return max(
            _FEWEST_PER_EXAMPLE, self._each(FEWEST_ROWS), enough, 2 * enough - ROWS_PER_EXAMPLE
        )

    def _each(self, rows: int) -> int:
        """Return how many rows of every example give this many in all."""
        assert self.expected is not None
        return -(-rows // self.expected)

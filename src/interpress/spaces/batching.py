"""Choose how many examples to run at once."""

from __future__ import annotations

import torch

from interpress.spaces.example_count import example_count
from interpress.spaces.spaces import Spaces

# Bytes of the largest value of a batch. The CPU allocator reuses the memory of smaller values.
# Larger ones get new pages from the system, which can cost as much time as the layer itself.
_REUSED_BYTES = 2**24
# Smallest batch: matrix products with fewer rows lose more time than the reused memory saves.
_FEWEST_EXAMPLES = 16
# Bytes of the largest value of a batch at which no batch has to be larger. The examples of a
# language model are long, and have one score per token of the vocabulary at every position.
_ENOUGH_BYTES = {"cpu": 2**28, "other": 2**31}


def examples_per_batch(spaces: Spaces, device: torch.device) -> int:
    """Return the most examples to run in one batch."""
    largest = max(1, spaces.cost.largest_activation() // captured_examples(spaces))
    if device.type != "cpu":
        return max(1, _ENOUGH_BYTES["other"] // largest)
    fewest = max(1, min(_FEWEST_EXAMPLES, _ENOUGH_BYTES["cpu"] // largest))
    return max(fewest, _REUSED_BYTES // largest)


def captured_examples(spaces: Spaces) -> int:
    """Return the number of examples that `spaces.cost` counts."""
    return example_count(spaces.program)

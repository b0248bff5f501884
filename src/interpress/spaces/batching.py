"""How many examples to run at once.

On a CPU, so few that the allocator hands out memory again that was used before: fresh memory comes
from the system page by page, which can cost as much as the layer that writes into it.
"""

from __future__ import annotations

import torch

from interpress.spaces.spaces import Spaces

_REUSED = 2**24  # bytes of a value, up to which its memory is kept for the next one
_FEWEST = 16  # examples; products of fewer rows are slow, and that is worse


def examples_per_batch(spaces: Spaces, device: torch.device) -> int | None:
    """Examples in a batch; None for any number."""
    if device.type != "cpu":
        return None
    largest = max(1, spaces.cost.largest_activation() // captured_examples(spaces))
    return max(_FEWEST, _REUSED // largest)


def captured_examples(spaces: Spaces) -> int:
    """How many examples the cost model counts."""
    sizes = [tensor.shape[0] for tensor in spaces.program.example.tensors() if tensor.ndim]
    return max(1, sizes[0] // 2 if spaces.program.doubled else sizes[0])

"""Batches are small enough for the CPU's allocator to reuse memory."""

from __future__ import annotations

import torch
from torch import nn

from interpress.graph.capture import capture
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces

CPU = torch.device("cpu")


def spaces(examples: int, side: int = 64) -> Spaces:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))
    return spaces_of(capture(model, torch.randn(examples, 3, side, side)))


def test_the_largest_value_of_a_batch_is_16_mebibytes() -> None:
    per_example = 4 * 16 * 64 * 64
    for examples in (1, 2, 5):
        found = spaces(examples)
        assert captured_examples(found) == examples
        assert examples_per_batch(found, CPU) == 2**24 // per_example == 64


def test_a_batch_has_at_least_16_examples() -> None:
    assert examples_per_batch(spaces(1, side=160), CPU) == 16


def test_on_a_gpu_only_very_large_values_limit_a_batch() -> None:
    largest = spaces(1, side=8).cost.largest_activation()
    assert examples_per_batch(spaces(1, side=8), torch.device("cuda")) == 2**31 // largest

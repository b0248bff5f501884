"""A dim is a sum over the spaces along it."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.spaces.dim_sizes import labels_along, length, size_of
from interpress.spaces.from_program import spaces_of

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def test_lengths() -> None:
    size = ((6, (0,)), (12, (0, 1)), (5, ()))
    assert length(size, {}) == 23
    assert length(size, {0: HALF}) == 3 + 6 + 5
    assert length(size, {0: HALF, 1: THIRD}) == 3 + 2 + 5


def test_a_concatenation_is_a_sum_of_two_spaces() -> None:
    class Concatenate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 6), nn.Linear(4, 8), nn.Linear(18, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(torch.cat([self.a(x).relu(), self.b(x).relu(), x], -1))

    spaces = spaces_of(capture(Concatenate(), torch.randn(2, 4)))
    value = spaces.trace.weights["o.weight"]
    labels = labels_along(value, 1)
    assert labels is not None
    a, b = spaces.names.index("a"), spaces.names.index("b")
    (inputs,) = (i for i, s in enumerate(spaces) if s.carriers == ("o.weight",))  # it is frozen
    expected = {(6, (a,)), (8, (b,)), (4, (inputs,))}
    assert set(size_of(labels, spaces.membership, spaces.all)) == expected
    assert spaces.cost.length(value, 1, {b: HALF}) == (6 + 4 + 4, {a, b, inputs})
    data = capture(nn.Identity(), torch.randn(2, 4))
    assert labels_along(spaces_of(data).trace.outputs[0], 1) is None

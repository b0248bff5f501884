"""`len(tensor)` does not fix the batch size of a captured model."""

from __future__ import annotations

import builtins

import pytest
import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.symbolic_len import symbolic_len


class CountsItsBatch(nn.Module):
    """Views and repeats by `len(x)`, as much code does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36 + 5, 2)
        self.token = nn.Parameter(torch.randn(1, 5))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.conv(x).relu().view(len(x), -1)
        return self.linear(torch.cat([flat, self.token.repeat(len(x), 1)], 1)) / len([1, 2])


def test_a_model_that_calls_len_takes_batches_of_any_size() -> None:
    torch.manual_seed(0)
    model = CountsItsBatch().eval()
    program = capture(model, torch.randn(4, 3, 8, 8))
    x = torch.randn(7, 3, 8, 8)
    (outputs,) = Executor(program).run(Example.of(x))
    torch.testing.assert_close(outputs, model(x))
    assert find_spaces(model, x[:2]).shrinkable


def test_len_is_what_it_was_afterwards() -> None:
    usual = builtins.len

    def fail_while_capturing() -> None:
        with symbolic_len():
            assert len(torch.zeros(3, 2)) == 3
            assert len("four") == 4
            len(torch.tensor(1.0))

    with pytest.raises(TypeError):  # a tensor without dims has no length
        fail_while_capturing()
    assert builtins.len is usual

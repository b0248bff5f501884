"""The operand of a tap is found and replaced among the arguments of its node."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from interpress.graph.capture import capture
from interpress.graph.executor import Executor
from interpress.spaces.from_program import spaces_of
from interpress.spaces.read_sites import by_node, operand_of, with_operand


class Reads(nn.Module):
    """Reads the hidden channels by a linear layer or by einsum."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.w, self.how = nn.Linear(4, 6), nn.Parameter(torch.randn(3, 6)), how

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        if self.how == "linear":
            return nn.functional.linear(input=h, weight=self.w)
        return torch.einsum("bi,oi->bo", h, self.w)


@pytest.mark.parametrize("how", ["linear", "einsum"])
def test_operands_are_found_and_replaced(how: str) -> None:
    model, x = Reads(how), torch.randn(5, 4)
    program = capture(model, x)
    sites = by_node(spaces_of(program).taps.values())
    ((reader, ((_, site),)),) = sites.items()
    operands = []

    def double(node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node is reader:
            operands.append(operand_of(node, args, kwargs, site))
            args, kwargs = with_operand(node, args, kwargs, site, 2 * operands[-1])
        return args, kwargs

    (output,) = Executor(program).run(x, before=double)
    assert torch.equal(operands[0], model.a(x).relu())
    torch.testing.assert_close(output, 2 * model(x))

"""Products of flattened rows are captured as linear layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.graph.dense import dense_layer_of
from interpress.graph.executor import Executor
from interpress.graph.program import Program, family


class Flattened(nn.Module):
    """`addmm` of flattened rows, as in GPT-2."""

    def __init__(self, *, restores: bool = True) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))
        self.restores = restores

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        shape = (*x.shape[:-1], 5) if self.restores else (x.shape[0], -1)
        return rows.view(shape)


class Plain(Flattened):
    """`addmm` of rows that were never flattened."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Scaled(Flattened):
    """`addmm` with factors, which no linear layer has."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight, beta=0.5)


def _families(program: Program) -> list[str]:
    return [family(node) for node in program.operators()]


@pytest.mark.parametrize(
    ("model", "shape"), [(Flattened(), (4, 3, 6)), (Flattened(), (4, 2, 3, 6)), (Plain(), (4, 6))]
)
def test_the_product_becomes_a_linear_layer(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    program = capture(model, x)
    found = [name for name in _families(program) if name != "aten.sym_size"]
    assert found == ["aten.t", "aten.linear"]
    assert torch.allclose(Executor(program).run(x)[0], model(x), atol=1e-6)
    other = torch.randn(7, *shape[1:])  # any number of examples
    assert torch.allclose(Executor(program).run(other)[0], model(other), atol=1e-6)
    parameters = program.parameters()
    dense = dense_layer_of(program, list(program.operators())[-1], parameters)
    assert dense is not None
    assert (dense.weight, dense.bias, dense.shape) == ("weight", "bias", (5, 6))
    assert dense.is_transposed
    assert torch.equal(dense.stored(dense.matrix(parameters["weight"])), parameters["weight"])


@pytest.mark.parametrize("model", [Flattened(restores=False), Scaled()])
def test_other_products_stay(model: nn.Module) -> None:
    x = torch.randn(4, 6) if isinstance(model, Scaled) else torch.randn(4, 3, 6)
    program = capture(model, x)
    assert "aten.addmm" in _families(program)
    assert torch.allclose(Executor(program).run(x)[0], model(x), atol=1e-6)

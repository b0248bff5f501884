"""Sums that a norm reads are found through casts and views, and rows keep their order."""

from __future__ import annotations

import pytest
import torch
from tests.pretrained.models import build, inputs
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.graph.dense import dense_layer_of
from interpress.graph.example import Example
from interpress.graph.normalised import inverse_sizes, normalised_value


def normalised(model: nn.Module, example: Example) -> dict[str, str | None]:
    """Return, per dense layer, the operator of the value that a norm reads."""
    program = capture(model.eval(), example)
    parameters, found = program.parameters(), {}
    for node in program.operators():
        dense = dense_layer_of(program, node, parameters)
        if dense is not None:
            value = normalised_value(node)
            found[dense.weight] = None if value is None else str(value.target)
    return found


@pytest.mark.parametrize(
    ("name", "to_stream", "others"),
    [
        ("llama", ("o_proj", "down_proj"), ("q_proj", "gate_proj", "lm_head")),
        ("qwen3", ("o_proj", "down_proj"), ("q_proj", "gate_proj", "lm_head")),
        ("opt", ("out_proj", "fc2"), ("q_proj", "fc1")),
    ],
)
def test_layers_that_add_to_the_residual_stream(
    name: str, to_stream: tuple[str, ...], others: tuple[str, ...]
) -> None:
    model = build(name)
    found = normalised(model, Example((), inputs(name, 3)).without_cache(model))
    for weight, operator in found.items():
        if any(part in weight for part in to_stream):
            assert operator is not None, weight
            assert "add" in operator
        if any(part in weight for part in others):
            assert operator is None, weight


class Branches(nn.Module):
    """A sum that a batch norm reads is no residual stream under a layer norm."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(6, 8), nn.Linear(6, 8), norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.first(x) + self.second(x))


def test_other_norms_and_products_are_not_followed() -> None:
    example = Example((torch.randn(4, 6),))
    assert set(normalised(Branches(nn.LayerNorm(8)), example).values()) == {"aten.add.Tensor"}
    assert set(normalised(Branches(nn.BatchNorm1d(8)), example).values()) == {None}
    assert set(normalised(Branches(nn.ReLU()), example).values()) == {None}


def test_inverse_sizes_make_every_row_unit_size() -> None:
    rows = torch.randn(5, 16, dtype=torch.float64) * torch.tensor([[1e-3], [1], [5], [1e3], [2]])
    scaled = rows * inverse_sizes(rows)
    assert torch.allclose(scaled.square().mean(1), torch.ones(5, dtype=torch.float64))
    assert bool(inverse_sizes(torch.zeros(2, 4)).isfinite().all())

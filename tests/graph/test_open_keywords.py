"""Inputs that a forward takes by `**kwargs` may have any batch size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.pretrained.models import build
from torch import Tensor, nn

import interpress
from interpress.graph.example import Example
from interpress.graph.open_keywords import named_keywords


class Open(nn.Module):
    """Takes anything by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, **inputs: Any) -> Tensor:
        """Return the scores."""
        return self.layers(inputs["x"])


def test_a_forward_of_keywords_is_captured_for_any_batch_size() -> None:
    torch.manual_seed(0)
    model, data = Open().eval(), {"x": torch.randn(120, 16)}
    result = interpress.compress(model, data, flops=0.6)
    assert result.flops <= 0.6
    assert result.model(x=data["x"][:7]).shape == (7, 5)
    assert "forward" not in vars(model)


def test_a_key_that_only_kwargs_take_does_no_harm() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(3, 60, (40, 11))
    plain = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    more = {**plain, "token_type_ids": torch.zeros_like(tokens)}
    first, second = (
        interpress.compress(build("llama"), data, flops=0.9, progress=False)
        for data in (plain, more)
    )
    assert first.widths == second.widths


@pytest.mark.parametrize("own", [False, True])
def test_the_forward_is_put_back(own: bool) -> None:
    model = Open()
    if own:
        model.forward = model.forward  # as wrappers do that set it on the instance
    before = vars(model).get("forward")
    with named_keywords(model, Example((), {"x": 1, "y": 2})):
        assert vars(model)["forward"] is not before
    assert vars(model).get("forward") is before

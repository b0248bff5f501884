"""`repr` of what users hold is short and true, without tables or tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import interpress
from interpress import Analysis


@pytest.fixture(scope="module")
def shown(analysis: Analysis) -> dict[str, Any]:
    result = analysis.compress(flops=0.3)
    return {
        "Analysis": analysis,
        "Result": result,
        "Spaces": analysis.spaces,
        "ChannelSpace": analysis.spaces[0],
        "Agreement": result.agreement,
        "Interpolation": interpress.interpolative_decomposition(torch.randn(40, 8), k=3),
        "SpacePlan": result.plan[0],
        "Point": result.curve[1],
        "Method": result.method,
    }


@pytest.mark.parametrize(
    "name",
    ["Analysis", "Result", "Spaces", "ChannelSpace", "Agreement", "Interpolation", "SpacePlan",
     "Point", "Method"],
)  # fmt: skip
def test_one_short_line(shown: dict[str, Any], name: str) -> None:
    text = repr(shown[name])
    assert text.startswith(f"{name}(")
    assert "\n" not in text
    assert len(text) < 280
    assert "tensor(" not in text


def test_numbers_are_those_of_the_object(shown: dict[str, Any]) -> None:
    result, spaces = shown["Result"], shown["Spaces"]
    assert f"{result.flops:.1%} of the FLOPs and {result.params:.1%} of the" in repr(result)
    assert "asked for flops=0.3" in repr(result)
    assert repr(result).endswith(f"on held-out examples {result.agreement})")
    assert f"{len(spaces.shrinkable)} can shrink, {len(spaces.frozen)} frozen" in repr(spaces)
    study = shown["Analysis"].study
    counts = f"{study.fit_examples} examples fitted, about {study.held_examples} held out"
    assert counts in repr(shown["Analysis"])
    assert repr(shown["Agreement"]) == f"Agreement({result.agreement})"
    assert repr(shown["Interpolation"]).startswith("Interpolation(k=3, n=8, largest_entry=")


def test_other_budgets_and_outputs(analysis: Analysis) -> None:
    assert "asked for params=0.6" in repr(analysis.compress(params=0.6))
    model = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1))
    x = torch.randn(200, 6)
    result = interpress.compress(model, x, width=0.5, progress=False)
    assert "on held-out examples output error" in repr(result)

"""`perplexity=`: the smallest network within a factor of the original's perplexity."""

from __future__ import annotations

import pytest
import torch
from tests.pretrained.models import build, texts

import interpress
from interpress import ArgumentError, Method
from interpress.budgets.budget import Budget

METHOD = Method(allocation="constant", refit=False)


def test_the_budget_holds_and_a_looser_one_gives_a_smaller_network() -> None:
    model = build("llama")
    with torch.no_grad():
        data = model.generate(texts(80)[:, :1], max_new_tokens=24, do_sample=True)  # type: ignore[operator]
    analysis = interpress.analyze(model, data, progress=False)
    tight, loose = (analysis.compress(perplexity=v, method=METHOD) for v in (1.02, 1.5))
    for result, value in ((tight, 1.02), (loose, 1.5)):
        assert result.agreement is not None
        assert result.agreement.tokens is not None
        assert result.agreement.tokens.ratio <= value
    assert loose.flops < tight.flops < 1


def test_other_models_are_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    with pytest.raises(ArgumentError, match="a model that predicts the next token"):
        interpress.compress(model, torch.randn(60, 6), perplexity=1.1, progress=False)


@pytest.mark.parametrize("value", [0.9, 0, float("inf"), "1.1", True])
def test_it_is_a_number_of_at_least_one(value: object) -> None:
    with pytest.raises(
        ArgumentError, match=r"(at least 1, the|not a number; give the) largest held-out"
    ):
        Budget("perplexity", value)  # type: ignore[arg-type]

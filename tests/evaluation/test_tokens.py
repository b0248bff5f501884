"""Perplexity is that of the definition; models that predict the next token are found by trying."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.pretrained.models import build, inputs, texts
from torch import nn

import interpress
from interpress.evaluation.output_meaning import find_meaning
from interpress.evaluation.tokens import TokenScores, TokenTally
from interpress.graph.example import Example
from interpress.pipeline.warn import ruin


@pytest.mark.parametrize(
    ("name", "expected"),
    [("llama", "input_ids"), ("gpt2", "input_ids"), ("t5", "decoder_input_ids"), ("bert", None)],
)
def test_what_is_predicted_is_found_by_changing_the_last_token(
    name: str, expected: str | None
) -> None:
    example = Example((), inputs(name, 3)).without_cache(build(name))
    meaning = find_meaning(build(name), example)
    found = meaning.tokens_of(example)
    if expected is None:
        assert found is None
    else:
        assert found is example.kwargs[expected]


def test_perplexity_is_that_of_the_loss_of_transformers() -> None:
    model, data = build("llama"), texts(6)
    with torch.no_grad():
        loss = float(model(input_ids=data, labels=data).loss)
    found = interpress.agreement(model, model, data, progress=False)
    assert found.tokens is not None
    assert found.tokens.tokens == 6 * 8
    assert found.tokens.perplexity == pytest.approx((math.exp(loss),) * 2, rel=1e-5)
    assert (found.tokens.ratio, found.tokens.top5) == (1.0, 1.0)
    assert found.per_class == ()  # not one row per token
    assert "Perplexity" in found.notes[0]


def test_padding_does_not_count() -> None:
    model, data = build("llama"), texts(4)
    padded = torch.cat([data, torch.zeros(4, 3, dtype=torch.long)], 1)
    mask = torch.arange(12).expand(4, 12) < 9
    batch = {"input_ids": padded, "attention_mask": mask.long()}
    one = interpress.agreement(model, model, data, progress=False).tokens
    other = interpress.agreement(model, model, [batch], progress=False).tokens
    assert one is not None
    assert other is not None
    assert other.tokens == one.tokens
    assert other.perplexity == pytest.approx(one.perplexity, rel=1e-4)


def test_overlap_and_frequencies() -> None:
    tally = TokenTally()
    assert tally.result() is None
    scores = torch.zeros(1, 3, 10)
    scores[..., :5] = torch.arange(5.0, 0, -1)
    other = scores.roll(2, -1)  # three of the five likeliest are the same
    tally.add(scores, other, torch.tensor([[1, 3, 4]]), None)
    found = tally.result()
    assert found is not None
    assert found.top5 == pytest.approx(3 / 5)
    assert found.unigram == pytest.approx(2.0)  # two tokens, once each


@pytest.mark.parametrize(
    ("perplexity", "is_ruined"), [((5.0, 30.0), True), ((5.0, 10.0), False), ((25.0, 30.0), False)]
)
def test_a_language_model_is_ruined_if_frequencies_predict_better(
    perplexity: tuple[float, float], is_ruined: bool
) -> None:
    """Unless they predict better than the original, too."""
    model = build("llama")
    measured = interpress.agreement(model, model, texts(4), progress=False)
    problem = ruin(replace(measured, tokens=TokenScores(10, perplexity, 0.5, 20.0)))
    if is_ruined:
        assert problem is not None
        assert "frequencies of the tokens gives 20" in problem
    else:
        assert problem is None


def test_a_classifier_of_examples_has_no_tokens() -> None:
    classifier = nn.Linear(9, 3)
    assert interpress.agreement(classifier, classifier, torch.randn(5, 9)).tokens is None


def test_the_interval_of_the_perplexity_covers_the_truth() -> None:
    """Texts that differ, drawn anew many times: about 95 % of the intervals hold the true ratio."""
    generator = torch.Generator().manual_seed(0)
    truth, held, trials = math.exp(0.05), 0, 300
    for _ in range(trials):
        tally = TokenTally()
        for tokens in (20, 30, 40) * 10:
            text = torch.zeros(1, tokens + 1, dtype=torch.long)
            first = torch.zeros(1, tokens + 1, 2)
            second = first.clone()
            # the loss of token 0 rises by 0.05 on average, by as much within a text
            rise = 0.05 + 0.1 * float(torch.randn((), generator=generator))
            second[..., 1] = math.log(math.expm1(math.log(2) + rise))
            tally.add(first, second, text, None)
        found = tally.result()
        assert found is not None
        assert found.interval is not None
        low, high = found.interval
        assert low < found.ratio < high
        held += low <= truth <= high
    assert 0.90 <= held / trials <= 0.98

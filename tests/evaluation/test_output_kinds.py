"""What every kind of output promises, and how each one differs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.evaluation.output_kinds import KINDS

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS: dict[str, list[Tensor]] = {  # outputs of six examples, in the shapes a kind can have
    "classification": [
        torch.randn(6, 5, generator=GENERATOR), torch.randn(6, 7, 5, generator=GENERATOR)
    ],
    "segmentation": [torch.randn(6, 5, 4, 3, generator=GENERATOR)],
    "binary": [torch.randn(6, generator=GENERATOR), torch.randn(6, 1, generator=GENERATOR)],
    "regression": [
        torch.randn(6, generator=GENERATOR), torch.randn(6, 3, 4, 4, generator=GENERATOR)
    ],
    "decisions": [torch.randint(9, (6,), generator=GENERATOR),
                  torch.randint(9, (6, 7), generator=GENERATOR)],
}  # fmt: skip
CASES = [(name, output) for name, outputs in OUTPUTS.items() for output in outputs]
every = pytest.mark.parametrize(("name", "output"), CASES)


def other(output: Tensor) -> Tensor:
    """Return another output of the same shape and dtype."""
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return output + noise if output.is_floating_point() else (output + 1) % 9


def test_every_kind_is_tested_here() -> None:
    assert OUTPUTS.keys() == KINDS.keys()
    assert all(kind.name == name for name, kind in KINDS.items())


@every
def test_an_output_does_not_differ_from_itself(name: str, output: Tensor) -> None:
    kind = KINDS[name]
    assert torch.equal(kind.divergences(output, output), torch.zeros(6, dtype=torch.float64))
    assert kind.distance(output, output) == 0.0


@every
def test_another_output_differs(name: str, output: Tensor) -> None:
    kind, changed = KINDS[name], other(output)
    divergences = kind.divergences(output, changed)
    assert divergences.shape == (6,)
    assert bool((divergences > 0).all())
    assert kind.distance(output, changed) > 0
    changed[1:] = output[1:]
    assert bool((kind.divergences(output, changed)[1:] == 0).all())  # examples do not mix


@every
def test_decisions_are_integers_one_per_example_and_position(name: str, output: Tensor) -> None:
    kind = KINDS[name]
    if not kind.decides:
        assert not kind.has_scores
        return
    decisions = kind.decisions(output)
    assert not decisions.is_floating_point()
    assert len(decisions) == 6
    scores = {"classification": -1, "segmentation": 1}
    expected = output.argmax(scores[name]) if name in scores else output > 0
    assert torch.equal(decisions, output if name == "decisions" else expected.long())


@every
def test_probabilities_sum_to_one_and_the_largest_is_the_confidence(
    name: str, output: Tensor
) -> None:
    kind = KINDS[name]
    probabilities, confidence = kind.probabilities(output), kind.confidence(output)
    one_decision = kind.has_scores and kind.decisions(output).numel() == 6
    assert (probabilities is not None) == one_decision
    if probabilities is not None:
        torch.testing.assert_close(probabilities.sum(1), torch.ones(6, dtype=torch.float64))
        assert torch.equal(probabilities.argmax(1), kind.decisions(output).reshape(-1))
    assert (confidence is not None) == (name in ("classification", "segmentation"))
    if confidence is not None:
        assert confidence.shape == kind.decisions(output).shape
        assert bool(((confidence >= 1 / 5) & (confidence <= 1)).all())
        if probabilities is not None:
            torch.testing.assert_close(confidence, probabilities.amax(1))


@every
def test_classes_are_counted_where_scores_compete(name: str, output: Tensor) -> None:
    expected = 5 if name in ("classification", "segmentation") else None
    assert KINDS[name].classes(output) == expected


def test_the_divergence_of_scores_is_kl() -> None:
    kind = KINDS["classification"]
    p, q = OUTPUTS["classification"][0], other(OUTPUTS["classification"][0])
    log_p, log_q = p.double().log_softmax(1), q.double().log_softmax(1)
    expected = nn.functional.kl_div(log_q, log_p, log_target=True, reduction="none").sum(1)
    torch.testing.assert_close(kind.divergences(p, q), expected)


def test_a_constant_added_to_all_scores_changes_nothing() -> None:
    scores = OUTPUTS["classification"][0].double()
    kind = KINDS["classification"]
    assert kind.distance(scores, scores + 3) == pytest.approx(0, abs=1e-20)
    assert float(kind.divergences(scores, scores + 3).max()) == pytest.approx(0, abs=1e-12)


def test_classes_that_are_ruled_out_do_not_make_nan() -> None:
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    scores[:, 2] = -torch.inf
    divergences = KINDS["classification"].divergences(scores, scores + torch.tensor([0.5, 0, 0]))
    assert bool(divergences.isfinite().all())
    assert bool((divergences > 0).all())


def test_a_distance_is_relative_to_the_spread_of_the_outputs() -> None:
    kind = KINDS["regression"]
    x, y = torch.randn(50, 2, generator=torch.Generator().manual_seed(3)).split(1, 1)
    assert kind.distance(x, y) == pytest.approx(kind.distance(100 * x, 100 * y))
    assert kind.distance(x + 1000, y + 1000) == pytest.approx(kind.distance(x, y), rel=1e-3)
    mean = x.mean(0, keepdim=True).expand_as(x)
    assert kind.distance(x, mean) == pytest.approx(1.0)

"""Agreement of two networks: shares, intervals, classes, flips, and what is no decision."""

from __future__ import annotations

import math

import pytest
import torch
from interpress.evaluation.tally import wilson
from torch import Tensor, nn

from interpress import ArgumentError, DataError, agreement
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example


class Fixed(nn.Module):
    """Gives back scores that are its input, some of them shifted."""

    def __init__(self, shift: Tensor | None = None) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(3) if shift is None else shift)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


SCORES = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0.9, 0], [0.9, 1, 0]])
LABELS = torch.tensor([0, 1, 2, 0, 0])
OTHER = Fixed(torch.tensor([0.0, 0.5, 0.0]))


def test_a_network_agrees_with_itself_in_everything() -> None:
    found = agreement(Fixed(), Fixed(), (SCORES, LABELS))
    assert found.agreement == 1.0
    assert found.divergence == 0.0
    assert found.flips == ()
    assert found.accuracy == (0.8, 0.8)
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(wilson(5, 5)[0])


def test_what_flipped_and_in_which_class() -> None:
    found = agreement(Fixed(), OTHER, [(SCORES[:2], LABELS[:2]), (SCORES[2:], LABELS[2:])])
    assert found.agreement == 0.8
    (flip,) = found.flips
    assert (flip.index, flip.before, flip.after, flip.label) == (3, 0, 1, 0)
    assert found.accuracy == (0.8, 0.6)
    zero = next(row for row in found.per_class if row.label == 0)
    assert (zero.count, zero.agreement) == (3, pytest.approx(2 / 3))
    assert (zero.accuracy_before, zero.accuracy_after) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    )
    expected = nn.functional.kl_div(
        (SCORES + OTHER.shift.detach()).log_softmax(1), SCORES.log_softmax(1),
        log_target=True, reduction="batchmean",
    )  # fmt: skip
    assert found.divergence == pytest.approx(float(expected), rel=1e-5)
    assert "80.00% of 5 decisions" in str(found)


def test_without_labels_classes_are_the_first_networks_decisions() -> None:
    found = agreement(Fixed(), OTHER, SCORES)
    assert found.accuracy is None
    assert [(row.label, row.count, row.agreement) for row in found.per_class] == [
        (0, 2, 0.5), (1, 2, 1.0), (2, 1, 1.0),
    ]  # fmt: skip
    assert all(row.accuracy_after is None for row in found.per_class)
    given = agreement(Fixed(), OTHER, SCORES, labels=LABELS)
    assert given.accuracy == (0.8, 0.6)
    with pytest.raises(DataError, match="4 labels for more examples; give one for each"):
        agreement(Fixed(), OTHER, SCORES, labels=LABELS[:4])


@pytest.mark.parametrize(("successes", "trials", "low", "high"), [
    (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (81, 100, 0.72222, 0.87495),
])  # fmt: skip
def test_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    """Against values computed with statsmodels' proportion_confint(method="wilson")."""
    assert wilson(successes, trials) == (
        pytest.approx(low, abs=2e-4),
        pytest.approx(high, abs=2e-4),
    )


def test_tokens_count_one_by_one_but_not_as_independent() -> None:
    tokens = SCORES.repeat(8, 4, 1).reshape(8, 20, 3)
    found = agreement(Fixed(), OTHER, tokens)
    assert found.decisions == 160
    assert found.agreement == pytest.approx(0.8)
    assert {flip.position for flip in found.flips} == {(3,), (8,), (13,), (18,)}
    assert found.interval == wilson(0.8 * 8, 8)  # an example is one trial


def test_a_regression_gets_an_error() -> None:
    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(factor))

        def forward(self, x: Tensor) -> Tensor:
            return self.factor * x[:, :1]

    x = torch.randn(500, 4)
    found = agreement(Scaled(1.0), Scaled(1.1), x)
    assert found.agreement is None
    assert math.isnan(float(found))
    assert found.output_error == pytest.approx(0.1, rel=0.01)
    assert "output error" in str(found)
    binary = agreement(Scaled(1.0), Scaled(-1.0), x, kind="binary")
    assert binary.agreement == 0.0


def test_segmentation_and_decisions() -> None:
    images = torch.randn(4, 5, 6, 6)
    assert find_meaning(nn.Identity(), Example((images,))).kind == "regression"
    found = agreement(nn.Identity(), nn.ReLU(), images, kind="segmentation")
    assert found.decisions == 4 * 36

    class Decides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(1)

    whole = agreement(Decides(), Decides(), SCORES)
    assert (whole.kind, whole.agreement, whole.divergence) == ("decisions", 1.0, None)
    with pytest.raises(ArgumentError, match="choose one of auto"):
        agreement(Fixed(), Fixed(), SCORES, kind="guess")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has shape"):
        agreement(nn.Identity(), nn.Identity(), torch.randn(4, 1), kind="classification")


def test_networks_are_left_in_their_mode_and_must_match() -> None:
    a, b = Fixed().train(), nn.Sequential(nn.Dropout(0.9), Fixed()).train()
    assert agreement(a, b, SCORES).agreement == 1.0
    assert a.training
    assert b[0].training
    with pytest.raises(DataError, match="shapes"):
        agreement(Fixed(), nn.Linear(3, 4), SCORES)
    with pytest.raises(DataError, match="no data"):
        agreement(Fixed(), Fixed(), [])

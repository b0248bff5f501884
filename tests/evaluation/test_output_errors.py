"""Errors of outputs that do not decide, and of regressions."""

from __future__ import annotations

import math

import pytest
import torch

from interpress import DataError
from interpress.evaluation.output_errors import OtherOutput, OtherTally, RelativeError

X = torch.randn(400, 6, 3, generator=torch.Generator().manual_seed(0))


def error(first: torch.Tensor, second: torch.Tensor) -> float:
    sums = RelativeError()
    sums.add(first, second)
    return sums.value()


def test_predicting_the_mean_gives_one() -> None:
    x = X + torch.tensor([0.0, 1000.0, 0.0])  # a large mean does not make errors small
    assert error(x, x) == 0
    assert error(x, x.mean(0, keepdim=True).expand_as(x)) == pytest.approx(1, abs=1e-3)
    assert error(X, 1.1 * X) == pytest.approx(0.1, rel=1e-2)


def test_batches_add_up() -> None:
    sums = RelativeError()
    for x in X.split(150):
        sums.add(x, 1.1 * x)
    assert sums.value() == pytest.approx(error(X, 1.1 * X), rel=1e-12)
    assert RelativeError().value() == 0


def test_batches_of_different_lengths_count_every_position() -> None:
    sums = RelativeError()
    sums.add(X[:100], 1.1 * X[:100])  # (100, 6, 3)
    sums.add(X[100:, :4], 1.1 * X[100:, :4])  # (300, 4, 3)
    rows = torch.cat([X[:100].reshape(-1, 3), X[100:, :4].reshape(-1, 3)])
    assert sums.value() == pytest.approx(error(rows, 1.1 * rows), rel=1e-9)
    sums.add(rows[:50], rows[:50])  # rows that a mask selected have no dim of positions
    assert sums.value() < error(rows, 1.1 * rows)


def test_an_output_that_never_varies_is_compared_with_its_size() -> None:
    anchors = torch.randn(1, 5, generator=torch.Generator().manual_seed(1)).expand(40, 5)
    assert error(anchors, anchors) == 0
    assert error(anchors, 1.5 * anchors) == pytest.approx(0.5)
    assert error(torch.zeros(4, 2), torch.zeros(4, 2)) == 0


def compared(first: torch.Tensor, second: torch.Tensor, **more: torch.Tensor) -> OtherOutput:
    tally = OtherTally("box")
    tally.add(first, second, **more)
    return tally.result()


def test_integers_and_booleans_get_the_fraction_of_equal_entries() -> None:
    classes = torch.arange(8).reshape(4, 2)
    assert compared(classes, classes) == OtherOutput("box", None, 1.0)
    result = compared(classes > 3, classes > 4)
    assert result.equal == pytest.approx(7 / 8)
    assert result.loss == pytest.approx(1 / 8)
    assert result.record() == {"name": "box", "error": None, "equal": result.equal}


def test_a_mask_says_which_positions_count() -> None:
    mask = torch.zeros(400, 6, dtype=torch.bool)
    mask[:, :4] = True
    broken = X.clone()
    broken[:, 4:] = math.nan
    assert compared(X, broken, mask=mask).error == 0
    assert compared(X, 1.1 * X, mask=mask).error == pytest.approx(0.1, rel=1e-2)
    tokens = torch.ones(400, 6, dtype=torch.long)
    assert compared(tokens, tokens * mask, mask=mask).equal == 1
    assert compared(X[:, 0], 1.1 * X[:, 0], mask=mask).error == pytest.approx(0.1, rel=1e-2)


def test_numbers_that_are_not_finite() -> None:
    masked = X.clone()
    masked[:, 0] = -math.inf
    assert compared(masked, masked).error == 0
    broken = compared(X, masked)
    assert broken.error == math.inf
    assert broken.record()["error"] is None
    assert compared(X, torch.full_like(X, math.nan)).error == math.inf


def test_one_number_for_a_batch_and_complex_numbers() -> None:
    tally = OtherTally("loss")
    for value in (1.0, 2.0, 3.0):
        tally.add(torch.tensor(value), torch.tensor(value))
    assert tally.result().error == 0
    z = torch.complex(X, X)
    assert compared(z, 1.1 * z).error == pytest.approx(0.1, rel=1e-2)


def test_outputs_of_other_shapes_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"outputs 'box' have shapes"):
        compared(X, X[:, :3])

"""Errors on rows that were not fitted, against regressions that are solved row by row."""

from __future__ import annotations

import pytest
import torch
from tests.linalg.matrices import normal
from torch import Tensor

from interpress.linalg.elimination import RIDGE, Consumer
from interpress.linalg.held_out import held_out_errors

WIDTHS = [0, 1, 3, 6]


def consumer_of(X: Tensor, U: Tensor, blocks: Tensor, energy: float = 2.0) -> Consumer:
    """Return a consumer whose rows are cut in the middle."""
    parts = X.chunk(2)
    moments = [part.T @ part / len(part) for part in parts]
    return Consumer(
        X.T @ X / len(X), U, blocks, energy, lambda half: (moments[half], moments[1 - half])
    )


def direct_error(fitted: Tensor, other: Tensor, U: Tensor, kept: list[int]) -> float:
    """Solve the weights of the kept inputs on some rows; return their error on others."""
    moments = fitted.T @ fitted / len(fitted)
    ridge = RIDGE * float(moments.diagonal().mean())
    rows = torch.cat([fitted / len(fitted) ** 0.5, ridge**0.5 * torch.eye(len(U)).double()])
    W = torch.zeros_like(U)
    if kept:
        W[kept] = torch.linalg.lstsq(rows[:, kept], rows @ U).solution
    return float((other @ (U - W)).square().sum()) / len(other)


EVEN = torch.arange(12).reshape(6, 2)
UNEVEN = torch.tensor([[0, 1, 2], [3, -1, -1], [-1, -1, -1], [4, 5, -1], [6, 7, 8], [9, 10, 11]])


@pytest.mark.parametrize("rows", [20, 400])
@pytest.mark.parametrize(("fixed", "blocks"), [(0, EVEN), (2, EVEN), (1, UNEVEN)])
def test_errors_equal_a_direct_solve_on_one_half_judged_on_the_other(
    fixed: int, blocks: Tensor, rows: int
) -> None:
    """Blocks of inputs, dropped in any order; `fixed` inputs in no block always stay."""
    u = 12 + fixed
    X = normal(rows, u)
    X[:, u // 2 :] += X[:, : u - u // 2]
    U = normal(u, 4, seed=1)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    errors = held_out_errors(consumer_of(X, U, blocks), order, WIDTHS)
    first, second = X.chunk(2)
    for error, width in zip(errors.tolist(), WIDTHS, strict=True):
        kept = [i for i in blocks[order[:width]].reshape(-1).tolist() if i >= 0]
        kept += range(12, u)
        directions = (first, second), (second, first)
        expected = sum(direct_error(a, b, U, kept) for a, b in directions) / (2 * 2.0)
        assert error == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_few_rows_have_larger_errors_than_the_rows_they_were_fitted_to() -> None:
    X, U = normal(40, 12), normal(12, 4, seed=1)
    blocks, order = torch.arange(12).reshape(12, 1), torch.arange(12)
    consumer = consumer_of(X, U, blocks)
    same = Consumer(consumer.G, U, blocks, 2.0, lambda half: (consumer.G, consumer.G))
    other, fitted = (held_out_errors(one, order, [8]) for one in (consumer, same))
    assert float(other) > 1.2 * float(fitted)


def test_many_outputs_are_sketched() -> None:
    """64 random combinations stand for 2000 outputs."""
    X, U = normal(200, 12), normal(12, 2000, seed=1)
    blocks, order = torch.arange(12).reshape(12, 1), torch.arange(12)
    errors = held_out_errors(consumer_of(X, U, blocks), order, [4, 8])
    first, second = X.chunk(2)
    for error, width in zip(errors.tolist(), (4, 8), strict=True):
        kept = list(range(width))
        directions = (first, second), (second, first)
        expected = sum(direct_error(a, b, U, kept) for a, b in directions) / (2 * 2.0)
        assert error == pytest.approx(expected, rel=0.25)


def test_dead_inputs_are_no_problem() -> None:
    X = normal(60, 6)
    X[:, [1, 4]] = 0
    consumer = consumer_of(X, normal(6, 2, seed=1), torch.arange(6).reshape(6, 1))
    errors = held_out_errors(consumer, torch.arange(6), [0, 5, 6])
    assert bool(errors.isfinite().all())
    assert float(errors[2]) == pytest.approx(0.0, abs=1e-9)

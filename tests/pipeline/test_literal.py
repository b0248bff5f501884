"""The paper's loop to the letter, against its one-pass form."""

from __future__ import annotations

import pytest
from tests.digits import Trained

from interpress import Analysis, ArgumentError, Method, agreement


def test_the_literal_loop_ends_near_the_one_pass_form(digits: Trained, analysis: Analysis) -> None:
    one_pass = analysis.compress(flops=0.5, method=Method.named("iterative-id", step=0.1))
    method = Method.named("iterative-id", step=0.1, recompute=True)
    literal = analysis.compress(flops=0.5, method=method)
    for result in (one_pass, literal):
        assert 0.47 <= result.flops <= 0.5
        assert float(agreement(digits.model, result.model, digits.test)) > 0.9
    assert literal.network.proof.difference < 1e-9
    assert literal.network.refit is None
    # kept channels and T are in the original's numbering, whatever the number of steps
    for row in literal.plan:
        assert len(row.kept) == row.after
        assert max(row.kept) < row.before


def test_a_budget_that_steps_cannot_reach_says_where_they_end(analysis: Analysis) -> None:
    method = Method.named("iterative-id", step=0.9, recompute=True)
    with pytest.raises(
        ArgumentError, match=r"flops=0\.01 cannot be reached in steps of 0\.9.*remain"
    ):
        analysis.compress(flops=0.01, method=method, min_width=20)

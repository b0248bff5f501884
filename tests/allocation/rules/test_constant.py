"""`constant`: the same fraction of every space."""

import pytest
from tests.allocation.conftest import MakeProblem

from interpress.allocation.problem import WidthLimits
from interpress.allocation.rules.constant import at_fraction, constant


@pytest.mark.parametrize("fraction", [1.0, 0.6, 0.25, 0.0])
def test_every_width_is_the_fraction_rounded_up(fraction: float, problem_of: MakeProblem) -> None:
    problem = problem_of("constant")
    assert at_fraction(problem, fraction) == {
        name: max(1, -(-size * round(100 * fraction) // 100))
        for name, size in problem.full().items()
    }


def test_widths_are_rounded_up_to_allowed_ones(problem_of: MakeProblem) -> None:
    problem = problem_of("constant", limits=WidthLimits(round_to=8))
    assert set(at_fraction(problem, 0.3).values()) == {16, 24}  # of 32 and 64
    assert all(width % 8 == 0 for widths in constant(problem) for width in widths.values())

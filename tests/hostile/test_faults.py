"""An exception or an interrupt anywhere leaves model, process and folder as they were."""

from __future__ import annotations

import pytest
from tests.hostile.faults import inject

# a fault inside a generator that is being discarded cannot be raised, and Python reports it
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_few_faults() -> None:
    lines: list[str] = []
    outcomes = inject(8, seed=3, report=lines.append)
    assert outcomes["left changed"] == 0, lines
    assert outcomes["stopped"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_faults() -> None:
    lines: list[str] = []
    outcomes = inject(500, seed=0, report=lines.append)
    assert outcomes["left changed"] == 0, lines

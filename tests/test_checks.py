"""Numbers of any library are numbers; booleans are not."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from interpress.checks import is_number, is_whole

WHOLE = [0, -3, 2**70, np.int32(4)]
REAL = [0.5, float("nan"), np.float32(0.5), Fraction(1, 2)]
NEITHER = [True, np.bool_(True), "1", None, 1j, Decimal(1), torch.tensor(1), [1]]


@pytest.mark.parametrize("value", WHOLE)
def test_whole_numbers(value: object) -> None:
    assert is_whole(value)
    assert is_number(value)


@pytest.mark.parametrize("value", REAL)
def test_real_numbers(value: object) -> None:
    assert is_number(value)
    assert not is_whole(value)


@pytest.mark.parametrize("value", NEITHER)
def test_other_values(value: object) -> None:
    assert not is_whole(value)
    assert not is_number(value)

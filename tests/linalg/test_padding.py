"""Columns of zeros behind a matrix: they avoid bad row lengths and change no values."""

import pytest
import torch
from tests.linalg.matrices import normal

from interpress.linalg.padding import padded, padding


@pytest.mark.parametrize("element_size", [4, 8])
def test_no_row_length_is_a_multiple_of_a_large_power_of_two(element_size: int) -> None:
    for n in range(1, 3000):
        count = padding(n, element_size)
        assert 1 <= count * element_size <= 128
        assert (n + count) * element_size % 64 == 0
        assert (n + count) * element_size % 512 != 0


def test_the_copy_has_zeros_behind_the_columns() -> None:
    A = normal(10, 128)
    copy = padded(A)
    assert torch.equal(copy[:, :128], A)
    assert not copy[:, 128:].any()
    assert copy.shape[1] > 128
    assert copy.is_contiguous()

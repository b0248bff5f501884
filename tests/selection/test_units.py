"""Which unit of a space a column belongs to."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.members import build

from interpress import Analysis, find_spaces
from interpress.selection.units import columns_by_unit, units_of


def test_columns_are_gathered_unit_by_unit() -> None:
    units = torch.tensor([2, -1, 0, 1, 0, 2, 1])
    columns = columns_by_unit(units, 3)
    assert columns is not None
    assert columns.tolist() == [[2, 4], [3, 6], [0, 5]]


@pytest.mark.parametrize(
    ("units", "expected"),
    [([0, 1, 1], [[0, -1], [1, 2], [-1, -1]]), ([2, 1, -1], [[-1], [1], [0]])],
)
def test_units_may_have_fewer_columns_than_others(
    units: list[int], expected: list[list[int]]
) -> None:
    columns = columns_by_unit(torch.tensor(units), 3)
    assert columns is not None
    assert columns.tolist() == expected


def test_units_without_columns() -> None:
    assert columns_by_unit(torch.tensor([-1, -1, -1]), 3) is None


def test_labels_of_other_spaces_belong_to_no_unit(analysis: Analysis) -> None:
    spaces = analysis.spaces
    tap = next(tap for tap in spaces.taps.values() if tap.name.startswith("hidden"))
    assert torch.equal(units_of(spaces, spaces["stem.0"], tap.labels), torch.arange(24))
    assert set(units_of(spaces, spaces["inner.0"], tap.labels).tolist()) == {-1}


def test_heads_have_their_own_units() -> None:
    """Sixteen channels in four heads: a column belongs to a channel and to a head."""
    model, example = build("einsum_attention")
    spaces = find_spaces(model, example)
    tap = spaces.taps[spaces["v"].taps[0]]
    assert torch.equal(units_of(spaces, spaces["v"], tap.labels), torch.arange(16))
    heads = units_of(spaces, spaces["k:heads"], tap.labels)
    assert torch.equal(heads, torch.arange(4).repeat_interleave(4))

"""How many rows are taken of every example."""

from __future__ import annotations

import pytest

from interpress.calibration.rows_wanted import RowsWanted


@pytest.mark.parametrize(
    ("expected", "channels", "rows"),
    [(100, 64, 41), (100, 512, 41), (800, 64, 6), (800, 512, 11), (800, 2048, 21), (50000, 64, 4)],
)
def test_rows_of_a_tap_give_every_channel_enough(expected: int, channels: int, rows: int) -> None:
    wanted = RowsWanted(expected, patches=True, of_tokens=False)
    assert wanted.rows(channels) == rows
    assert wanted.rows(channels) * expected >= max(8 * channels, 4096)


@pytest.mark.parametrize(
    ("expected", "inputs", "rows"),
    [(100, 144, 41), (100, 2048, 148), (800, 576, 6), (800, 2048, 11), (50000, 2048, 4)],
)
def test_patches_give_every_input_enough(expected: int, inputs: int, rows: int) -> None:
    wanted = RowsWanted(expected, patches=True, of_tokens=False)
    assert wanted.patches_of(inputs) == rows


def test_language_models_take_more_and_unknown_sizes_the_usual_number() -> None:
    tokens = RowsWanted(1000, patches=True, of_tokens=True)
    assert tokens.rows(576) == 37
    assert RowsWanted(100_000, patches=True, of_tokens=True).rows(576) == 16
    assert RowsWanted(None, patches=True, of_tokens=False).rows(4096) == 16

"""Names are shortened in the middle and stay distinct."""

from __future__ import annotations

import pytest

from interpress.tables.names import short_names


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("features.conv1", 14, "features.conv1"),
        ("features.block3.unit2.conv1", 20, "…block3.unit2.conv1"),
        ("features.block3.unit2.conv1", 14, "…unit2.conv1"),
        ("features.first.second.conv", 14, "features…conv"),
        ("model.encoder.layers.3.self_attention.query", 24, "model…layers.3…query"),
        ("features.block3.unit2.conv1", 8, "…conv1"),
        ("averylongnamewithoutanydots", 13, "aver…tanydots"),
    ],
)
def test_parts_are_left_out_in_the_middle(name: str, width: int, short: str) -> None:
    assert short_names([name], width) == [short]
    assert len(short) <= width


def test_the_number_of_a_block_is_not_lost() -> None:
    names = [f"model.encoder.layers.{i}.self_attention.query_key_value" for i in range(30)]
    short = short_names(names, 32)
    assert len(set(short)) == 30
    assert max(map(len, short)) <= 32
    assert short[3] == "model…layers.3…query_key_value"


def test_names_that_no_cut_tells_apart_stay_whole() -> None:
    names = ["a" * 20 + letter + "b" * 20 for letter in "xy"]
    assert short_names(names, 8) == names


def test_equal_names_and_no_names() -> None:
    assert short_names([], 10) == []
    assert short_names(["conv", "conv"], 10) == ["conv", "conv"]

"""Plots as SVG."""

from __future__ import annotations

import re

import pytest

from interpress.report.drawing import Plot, skyline, ticks


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ((0.93, 1.0), [0.94, 0.96, 0.98, 1.0]),
        ((0.0, 0.37), [0.0, 0.1, 0.2, 0.3]),
        ((0.5, 0.5), [0.5]),
    ],
)
def test_ticks_are_round_numbers(ends: tuple[float, float], expected: list[float]) -> None:
    assert ticks(*ends) == pytest.approx(expected)


def test_points_lie_where_their_values_say() -> None:
    plot = Plot((0.0, 1.0), (0.5, 1.0), "a <label>")
    (left, bottom), (right, top) = plot.at(0.0, 0.5), plot.at(1.0, 1.0)
    assert plot.at(0.5, 0.75) == pytest.approx(((left + right) / 2, (bottom + top) / 2))
    assert top < bottom
    plot.dot(0.5, 0.75, (0.6, 0.9), "measured")
    plot.line([(0.0, 0.1), (1.0, 1.0)])
    text = plot.svg()
    assert 'aria-label="a &lt;label&gt;"' in text
    line = re.search(r'polyline class="line cut" points="([^"]+)"', text)
    assert line is not None
    assert line[1].split()[0] == f"{left:.1f},{bottom:.1f}"  # moved to the border


def test_a_skyline_has_a_column_per_space() -> None:
    text = skyline([(f"s{i}", 64, 32, i % 2 == 0) for i in range(100)], "widths")
    assert text.count("<rect") == 200
    assert text.count('class="frozen"') == 50
    assert "<title>s7: 32 of 64</title>" in text

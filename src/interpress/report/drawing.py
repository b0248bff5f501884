"""Plots as inline SVG. Colours come from the style sheet, so they follow dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from interpress.report.markup import attribute, escape

_WIDTH, _HEIGHT = 720.0, 370.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 30.0, 36.0, 70.0


@dataclass
class Plot:
    """A plot with two linear axes; points outside are cut off."""

    x: tuple[float, float]
    y: tuple[float, float]
    label: str
    """What the plot shows, for readers who cannot see it."""
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point."""
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM),
        )

    def axes(self, x_title: str, y_title: str) -> None:
        """Draw grid lines, ticks and titles; both axes are in percent."""
        for value in ticks(*self.y):
            left, height = self.at(self.x[0], value)
            self.parts.append(
                f'<line class="grid" x1="{left:.1f}" x2="{_WIDTH - _RIGHT:.1f}" y1="{height:.1f}" '
                f'y2="{height:.1f}"/>'
            )
            self._text(left - 8, height + 5, _tick(value, self.y), "end")
        for value in ticks(*self.x):
            across, bottom = self.at(value, self.y[0])
            self._text(across, bottom + 26, _tick(value, self.x), "middle")
        self._text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x_title, "middle")
        self._text(4, 20, y_title, "start")

    def line(self, points: Sequence[tuple[float, float]], kind: str = "line") -> None:
        """Draw a line through points."""
        self.parts.append(f'<polyline class="{kind} cut" points="{self._path(points)}"/>')

    def band(
        self, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]]
    ) -> None:
        """Fill the area between two lines."""
        path = self._path([*lower, *reversed(upper)])
        self.parts.append(f'<polygon class="band cut" points="{path}"/>')

    def dot(self, x: float, y: float, interval: tuple[float, float] | None, title: str) -> None:
        """Draw a measured point with the bar of its interval."""
        across, height = self.at(x, y)
        if interval is not None:
            (_, low), (_, high) = (self.at(x, max(end, self.y[0])) for end in interval)
            bar = f"M{across:.1f} {low:.1f}V{high:.1f}"
            ends = "".join(f"M{across - 9:.1f} {end:.1f}h18" for end in (low, high))
        self.parts.append(
            f'<circle class="dot" cx="{across:.1f}" cy="{height:.1f}" r="5">'
            f"<title>{escape(title)}</title></circle>"
        )
        if interval is not None:  # on top, since it may be shorter than the dot
            self.parts.append(f'<path class="whisker" d="{bar}{ends}"/>')

    def name(self, x: float, y: float, text: str) -> None:
        """Write a name beside a point, on the side where there is room."""
        across, height = self.at(x, y)
        is_right = across > 0.6 * _WIDTH
        self._text(
            across + (-13 if is_right else 13), height - 8, text, "end" if is_right else "start"
        )

    def svg(self) -> str:
        """Return the plot."""
        return (
            f'<svg class="plot" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" '
            f'aria-label="{attribute(self.label)}">{"".join(self.parts)}</svg>'
        )

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the points with those outside moved to the border."""
        inside = [
            (min(max(x, self.x[0]), self.x[1]), min(max(y, self.y[0]), self.y[1]))
            for x, y in points
        ]
        return " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in inside)

    def _text(self, x: float, y: float, text: str, anchor: str) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round values between two ends."""
    span = high - low
    if span <= 0:
        return [low]
    unit = 10 ** math.floor(math.log10(span / wanted))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if span / (unit * factor) <= wanted)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _tick(value: float, ends: tuple[float, float]) -> str:
    """Return a value in percent, with a digit more where the axis is short."""
    return f"{100 * value:.{0 if ends[1] - ends[0] > 0.04 else 1}f}"


def skyline(rows: Sequence[tuple[str, int, int, bool]], label: str) -> str:
    """Return one column per space: its width before, and after. For networks with many spaces."""
    tallest = max(before for _, before, _, _ in rows)
    step = _WIDTH / len(rows)
    columns = []
    for number, (name, before, after, frozen) in enumerate(rows):
        x, width = number * step, max(step - min(1.5, step / 4), 0.5)
        kind = "frozen" if frozen else "kept"
        for height, fill in ((before, "before"), (after, kind)):
            tall = max(1.0, 200 * height / tallest)
            columns.append(
                f'<rect class="{fill}" x="{x:.1f}" y="{206 - tall:.1f}" width="{width:.1f}" '
                f'height="{tall:.1f}"><title>{escape(name)}: {after} of {before}</title></rect>'
            )
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH:.0f} 210" role="img" '
        f'aria-label="{attribute(label)}">{"".join(columns)}</svg>'
    )

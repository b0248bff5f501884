"""Markdown tables and figures in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

_GIVE = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; first column left, the others right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and 95 % interval of the mean (Student's), or the one value there is."""
    if not values:
        return ""
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f}{_GIVE}{half_width(values):.{digits}f}"


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t."""
    if len(values) < 2:
        return math.nan
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def in_mean(values: Sequence[float], digits: int = 2) -> str:
    """Mean and its uncertainty, sigma / sqrt(N), as the paper has it."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.{digits}f}{_GIVE}{error:.{digits}f}"


def number(value: float | None, digits: int = 3) -> str:
    """A number in few characters; empty where there is none."""
    return "" if value is None else f"{value:.{digits}g}"

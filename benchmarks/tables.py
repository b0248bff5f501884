"""Markdown tables, and numbers formatted for them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

_PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"

_NETWORK_TITLES = {
    "vgg16": "VGG-16",
    "mobilenetv1": "MobileNetV1",
    "resnet56": "ResNet-56",
    "efficientnet-lite2": "EfficientNet-Lite2",
    "crepe-tiny": "CREPE tiny",
    "crepe-full": "CREPE full",
}


def network_title(name: str) -> str:
    """Return the usual spelling of a network's name."""
    return _NETWORK_TITLES.get(name, name)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int = 1) -> str:
    """Return a Markdown table; columns after the first `text_columns` are right-aligned."""
    alignment = "|" + "---|" * text_columns + "---:|" * (len(header) - text_columns)
    lines = ["| " + " | ".join(header) + " |", alignment]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def interval_half_width(values: Sequence[float]) -> float:
    """Return half the width of the 95 % confidence interval of the mean (Student's t)."""
    if len(values) < 2:
        return math.nan
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def mean_with_interval(values: Sequence[float], digits: int = 1) -> str:
    """Return "mean ± half-width of its 95 % interval", or the value itself if there is only one."""
    if len(values) < 2:
        return _single(values, digits)
    return _plus_minus(values, interval_half_width(values), digits)


def mean_with_standard_error(values: Sequence[float], digits: int = 2) -> str:
    """Return "mean ± sigma / sqrt(N)", which is what the paper reports."""
    if len(values) < 2:
        return _single(values, digits)
    return _plus_minus(values, statistics.stdev(values) / math.sqrt(len(values)), digits)


def significant(value: float | None, digits: int = 3) -> str:
    """Return a number with this many significant digits, or "" for None."""
    return "" if value is None else f"{value:.{digits}g}"


def _single(values: Sequence[float], digits: int) -> str:
    return f"{values[0]:.{digits}f}" if values else ""


def _plus_minus(values: Sequence[float], uncertainty: float, digits: int) -> str:
    return f"{statistics.mean(values):.{digits}f}{_PLUS_MINUS}{uncertainty:.{digits}f}"

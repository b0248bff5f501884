"""How the page writes numbers."""

from __future__ import annotations

_SPACE = "\u00a0"  # does not break a line
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(value: float | None, digits: int = 1) -> str:
    """Return a fraction in percent; empty if it is not known."""
    return "" if value is None else f"{100 * value:.{digits}f}{_SPACE}%"


def count(value: float) -> str:
    """Return a whole number with separators."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Return a number with three digits and a prefix, such as 3.58 M."""
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.3g}{_SPACE}{prefix}"
    return f"{value:.3g}{_SPACE}"


def size(value: float) -> str:
    """Return bytes in kB, MB or GB."""
    return f"{short(value)}B"


def seconds(value: float) -> str:
    """Return a duration in s, ms or µs."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g}{_SPACE}{unit}"
    return f"{value / 1e-6:.3g}{_SPACE}µs"


def plural(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun."""
    return f"{count(number)} {noun if number == 1 else several or noun + 's'}"


def difference(value: float) -> str:
    """Return how far an identity is from exact."""
    return (
        ", without any difference" if value == 0 else f", to a relative difference of {value:.1e}"
    )

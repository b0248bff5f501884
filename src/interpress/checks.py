"""Checks of single arguments that several packages share."""

from __future__ import annotations

from numbers import Integral, Real


def is_whole(value: object) -> bool:
    """Return whether `value` is an integer of any library, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether `value` is a real number of any library, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)

"""What was done to raw inputs before the model saw them, as a record that is kept with a result.

Two runs are comparable only if their inputs were prepared alike. A record has any keys; those of
the command line are `inputs`, `preset`, `size`, `mean`, `std`, `color`, `crop`, `interpolation`,
`shape`, `tokenizer`, `vocabulary` and `length`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from interpress.errors import ArgumentError

Preprocessing = Mapping[str, Any]
"""What was done to raw inputs, by name; the values are what JSON can hold."""

_NAMES_ONLY = ("inputs", "preset", "tokenizer")
"""Keys that name something whose effect other keys say; another name may mean the same."""


def as_preprocessing(preprocessing: Preprocessing | str | None) -> dict[str, Any] | None:
    """Return a user's `preprocessing=` as plain data; a sentence becomes the key `description`."""
    if preprocessing is None:
        return None
    if isinstance(preprocessing, str):
        return {"description": preprocessing}
    try:
        if not isinstance(preprocessing, Mapping):
            raise TypeError(f"it is of type {type(preprocessing).__name__}")
        text = json.dumps(dict(preprocessing), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"preprocessing= cannot be written to a file ({error}); give a dict of numbers, lists "
            "and strings, such as {'size': 224, 'mean': [0.485, 0.456, 0.406]}, or a sentence"
        ) from error
    record: dict[str, Any] = json.loads(text)
    return record


def differences(saved: Preprocessing | None, here: Preprocessing | None) -> dict[str, Any]:
    """Return what was saved for every key whose value here is another one.

    A key that only one of them has is not compared. An image whose size was left as it was may have
    the very size that the other run asked for; the key `shape` tells.
    """
    if not saved or not here:
        return {}
    different = {
        key: value
        for key, value in saved.items()
        if key in here and key not in _NAMES_ONLY and not _alike(value, here[key])
    }
    if None in (saved.get("size"), here.get("size")) and "shape" in saved and "shape" in here:
        different.pop("size", None)
    return different


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)
    return bool(one == other)

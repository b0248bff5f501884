"""Masks: which positions of an example count, such as the tokens that are not padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from interpress.data.inputs import LABELS
from interpress.errors import ArgumentError, DataError

Mask: TypeAlias = str | Callable[[Any], Any]
"""What `mask=` may be: a key of the batch, or a function from a batch to its mask."""
ATTENTION = ("attention_mask", "decoder_attention_mask")
"""Keys of a batch that hold a mask, as tokenizers write it: 1 where there is a token."""
IGNORED = -100
"""The label that means "do not count this position", as in torch.nn.CrossEntropyLoss."""


def check_mask(mask: Any) -> None:
    """Raise if `mask` is neither a key nor a function."""
    if mask is not None and not callable(mask) and not (isinstance(mask, str) and mask):
        raise ArgumentError(
            f"mask={mask!r}; give a key of the batch, such as 'attention_mask', or a function "
            "from a batch to a tensor (examples, positions) that is True where a position counts"
        )


def masks_of(batch: Any, mask: Mask | None, examples: int, number: int = 0) -> tuple[Tensor, ...]:
    """Return the masks of a user's batch: those of `mask=`, or those that the batch carries.

    Masks of the same shape are combined. A batch carries an attention mask, and labels of which
    some may be -100.
    """
    if callable(mask):
        return (_own(batch, mask, examples, number),)
    if isinstance(batch, tuple | list) and batch and isinstance(batch[0], Mapping):
        batch = batch[0]  # labels beside a dict of inputs
    if mask is not None:
        return (_own(batch, mask, examples, number),)
    if not isinstance(batch, Mapping):
        return ()
    found: dict[torch.Size, Tensor] = {}
    for name in (*ATTENTION, *LABELS):
        value = _tensor(batch.get(name))
        if value is None or value.ndim < 2 or len(value) != examples or value.ndim > 3:
            continue
        is_label = name in LABELS
        if is_label and (value.is_floating_point() or not _says_something(value)):
            continue
        if not is_label and value.ndim != 2:  # one row per query is not a mask of positions
            continue
        counts = value != IGNORED if is_label else value != 0
        found[counts.shape] = found[counts.shape] & counts if counts.shape in found else counts
    return tuple(found.values())


def _says_something(labels: Tensor) -> bool:
    """Return whether some labels, but not all, are -100; without any label nothing is excluded."""
    ignored = labels == IGNORED
    return bool(ignored.any()) and not bool(ignored.all())


def _own(batch: Any, mask: Mask, examples: int, number: int) -> Tensor:
    """Return the mask that the user's key or function gives for a batch."""
    if isinstance(mask, str):
        if not isinstance(batch, Mapping) or mask not in batch:
            kind = type(batch).__name__
            keys = ", ".join(map(repr, batch)) if isinstance(batch, Mapping) else "no keys"
            raise DataError(
                f"mask={mask!r} is not a key of calibration batch {number}, a {kind} with {keys}; "
                "give another key, or a function from a batch to its mask"
            )
        value = _tensor(batch[mask])
    else:
        value = _tensor(mask(batch))
    if value is None or value.ndim < 2 or len(value) != examples:
        shape = type(value).__name__ if value is None else tuple(value.shape)
        raise DataError(
            f"mask= gives {shape} for calibration batch {number} of {examples} examples; give a "
            "tensor (examples, positions) that is True where a position counts"
        )
    return value != 0


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(value) if type(value).__name__ == "ndarray" else None

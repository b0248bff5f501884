"""Predicted errors of a space on rows that were not fitted.

With `k` unknowns and `n` independent rows, least squares leaves an error of about `s * (1 - k / n)`
on the rows it was fitted to and `s * (1 + k / n)` on others. What is fitted to half of the rows has
`s * (1 + 2 * k / n)` on the other half. So the error on other rows is a third of the first plus two
thirds of the last, and that is what we use, also where this model is only roughly right.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from interpress.linalg.held_out import held_out_errors
from interpress.selection.profile import Profile

_FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 15 / 16)
"""Widths at which the error on other rows is computed, as fractions of a space."""

HalfErrors = Callable[[list[int]], Tensor]
"""From widths to errors of fits to half of the rows, on the other half."""


def corrected(errors: Tensor, half_errors: HalfErrors | None) -> Tensor:
    """Return (size + 1,) errors on other rows, from those on the rows that were fitted."""
    size = len(errors) - 1
    widths = sorted({round(f * size) for f in _FRACTIONS} - {0, size})
    if half_errors is None or not widths:
        return errors
    fitted = errors[torch.tensor(widths)]
    excess = (half_errors(widths).cpu() - fitted).clamp(min=0) * 2 / 3
    points, values = [0, *widths, size], [0.0, *excess.tolist(), 0.0]
    return errors + torch.from_numpy(np.interp(np.arange(size + 1), points, values))


def half_errors_of_patches(profile: Profile, units: Tensor) -> HalfErrors | None:
    """Return the errors of consumers whose inputs are all solved again."""
    consumers = [view.patches for view in profile.views]
    known = [consumer for consumer in consumers if consumer is not None and consumer.halves]
    if not known or len(known) < len(consumers):
        return None

    def errors(widths: list[int]) -> Tensor:
        parts = [held_out_errors(consumer, units, widths) for consumer in known]
        return torch.stack(parts).sum(0)

    return errors


def half_errors_of_T(profile: Profile, units: Tensor) -> HalfErrors | None:
    """Return the errors of consumers that absorb `T`."""
    halves = [view.halves for view in profile.views]
    if any(not half.both for half in halves):
        return None

    def errors(widths: list[int]) -> Tensor:
        return torch.tensor([_error_of_T(profile, units[:w]) for w in widths], dtype=torch.float64)

    return errors


def _error_of_T(profile: Profile, kept_units: Tensor) -> float:
    """Return the relative squared error, summed over taps, with some units kept."""
    total = 0.0
    for view in profile.views:
        if view.energy <= 0:
            continue
        halves = view.halves
        error = halves.error(view.columns(kept_units), halves.prior, view.H)
        total += error * view.factor.rows / view.energy
    return total

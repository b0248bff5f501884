"""Baseline: the sampling of provable filter pruning (Liebenwein et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection

_ROWS = 512  # sampled positions of the consumer's output


@selection("pfp")
def pfp(profile: Profile) -> Ranking:
    """Draw channels without replacement in proportion to their sensitivity.

    The sensitivity of a channel is the largest fraction it contributes, over examples and outputs,
    to the sum that its consumer computes; positive and negative terms are counted separately. The
    published method draws with replacement and rescales the kept channels; here the correction by
    `T` takes the place of rescaling.
    """
    sensitivity = torch.zeros(profile.space.size, dtype=torch.float64)
    for view in profile.views:
        sample = profile.activations(view.tap)
        inputs = patches_and_weights(sample, _ROWS, profile.generator())
        if inputs is None:
            weight = view.summed_by_unit(view.H.diagonal()).sqrt()
            magnitudes = sample.columns()[:_ROWS].abs().to(weight)
            sizes = summed_by_unit(magnitudes, sample, profile)
            fractions = _largest_fraction((sizes * weight)[:, None])
        else:
            by_unit = partial(summed_by_unit, sample=sample, profile=profile)
            fractions = _largest_fractions(*inputs, by_unit)
        sensitivity = torch.maximum(sensitivity, fractions)
    # ranking by sensitivity over exponential noise is sampling without replacement
    noise = torch.empty_like(sensitivity).exponential_(generator=profile.generator())
    return ranked(sensitivity / noise)


def _largest_fractions(X: Tensor, W: Tensor, by_unit: Callable[[Tensor], Tensor]) -> Tensor:
    """Return, per unit, its largest fraction of a sum over rows, outputs and signs."""
    largest: Tensor | None = None
    for rows in X.split(16):
        positive, negative = rows.clamp(min=0), rows.clamp(max=0)
        for left, right in ((W.clamp(min=0), W.clamp(max=0)), (W.clamp(max=0), W.clamp(min=0))):
            terms = torch.einsum("rct,oct->roc", positive, left)
            terms += torch.einsum("rct,oct->roc", negative, right)
            fractions = _largest_fraction(by_unit(terms.abs()))
            largest = fractions if largest is None else torch.maximum(largest, fractions)
    assert largest is not None
    return largest


def _largest_fraction(terms: Tensor) -> Tensor:
    """Return, from (rows, outputs, units), each unit's largest fraction of a sum over units."""
    total = terms.sum(-1, keepdim=True)
    return (terms / total.clamp(min=1e-30)).amax((0, 1)).double().cpu()

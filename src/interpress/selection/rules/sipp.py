"""Baseline: sensitivity-informed pruning, made structural (SiPP, Baykal et al., 2019).

SiPP scores single weights. The sensitivity of the weight `w_ij` of output i is the largest share
that it has in the output's sum over some examples x,

    s_ij = max over x of  w_ij * x_j / sum_k w_ik * x_k,

where positive and negative terms are summed separately. Its deterministic variant keeps the weights
of the largest sensitivity. Made structural: the score of a channel is the sum of the sensitivities
of all weights that read it, over outputs and kernel positions. (`pfp` takes the largest share of a
channel in any output instead, and draws channels at random.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection

_ROWS = 128  # sampled positions of the consumer's output


@selection("sipp")
def sipp(profile: Profile) -> Ranking:
    """Keep the channels whose weights have the largest sensitivities in sum."""
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for view in profile.views:
        sample = profile.activations(view.tap)
        inputs = patches_and_weights(sample, _ROWS, profile.generator())
        if inputs is None:  # not a single dense consumer: use the size of a unit and of its weights
            values = summed_by_unit(sample.columns()[:_ROWS].abs().float(), sample, profile)
            norms = view.summed_by_unit(view.H.diagonal()).sqrt().to(values)
            scores = sensitivities(values[:, :, None], norms[None, :, None]).sum((0, 2))
        else:
            scores = summed_by_unit(sensitivities(*inputs).sum((0, 2)), sample, profile)
        total += scores.double().cpu() / scores.sum().clamp(min=1e-30).double().cpu()
    return ranked(total)


def sensitivities(X: Tensor, W: Tensor) -> Tensor:
    """Return (outputs, columns, kernel) sensitivities from rows (rows, columns, kernel)."""
    largest = torch.zeros_like(W)
    for row in X:
        terms = row * W
        for part in (terms.clamp(min=0), terms.clamp(max=0)):
            total = part.sum((1, 2), keepdim=True)
            shares = part / torch.where(total == 0, 1.0, total)
            largest = torch.maximum(largest, shares)
    return largest

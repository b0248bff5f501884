"""Baseline: ThiNet's greedy selection (Luo et al., ICCV 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking
from interpress.selection.registry import selection

_ROWS = 4096  # sampled positions of the consumer's output, each in one random output channel


@selection("thinet")
def thinet(profile: Profile) -> Ranking:
    """Drop next the channel that keeps the summed contribution of all dropped ones smallest."""
    return _greedy(contribution_gram(profile))


def contribution_gram(profile: Profile) -> Tensor:
    """Return (units, units): products of what two units contribute to outputs of the consumers.

    They are summed over sampled outputs, and every tap is scaled to the same size.
    """
    size = profile.space.size
    C = torch.zeros(size, size, dtype=torch.float64)
    for view in profile.views:
        products = _contribution_products(profile, view.tap)
        if products is None:  # not a single dense consumer: use all of its outputs at once
            gram = view.factor.G * view.H
            products = view.summed_by_unit(view.summed_by_unit(gram), 1)
        products = products.double().cpu()
        C += products / products.diagonal().sum().clamp(min=1e-300)
    return C


def _contribution_products(profile: Profile, tap: str) -> Tensor | None:
    """Return (units, units) products of two units' contributions, summed over sampled outputs."""
    generator = profile.generator()
    sample = profile.activations(tap)
    inputs = patches_and_weights(sample, _ROWS, generator)
    if inputs is None:
        return None
    X, W = inputs
    channel = torch.randint(len(W), (len(X),), generator=generator).to(W.device)
    contributions = [
        (x * W[c]).sum(-1) for x, c in zip(X.split(256), channel.split(256), strict=True)
    ]  # (rows, columns)
    by_unit = summed_by_unit(torch.cat(contributions), sample, profile)
    return by_unit.T @ by_unit


def _greedy(C: Tensor) -> Ranking:
    """Drop units one by one, each time the one that lets the dropped sum grow least."""
    size = len(C)
    growth = C.diagonal().clone()  # growth of ||sum of the dropped|| ** 2 with each unit
    dropped: list[int] = []
    sums = [0.0]
    for _ in range(size):
        unit = int(growth.argmin())
        sums.append(sums[-1] + float(growth[unit]))
        dropped.append(unit)
        growth += 2 * C[unit]
        growth[unit] = torch.inf
    errors = torch.tensor(sums[::-1], dtype=torch.float64).clamp(min=0)
    proxy = (errors / errors.max().clamp(min=1e-300)).sqrt()
    return Ranking(torch.tensor(dropped[::-1]), proxy)

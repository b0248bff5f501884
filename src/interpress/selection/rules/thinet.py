"""Baseline: ThiNet's greedy choice (Luo et al., ICCV 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, selection

_ROWS = 4096  # sampled places of the reader's output, each in one random channel of it


@selection("thinet")
def thinet(profile: Profile) -> Ranking:
    """Next to go is the channel that keeps what all dropped ones together contributed smallest."""
    C = torch.zeros(profile.space.size, profile.space.size, dtype=torch.float64)
    for reading in profile.readings:
        own = _contributions(profile, reading.tap)
        if own is None:  # several readers in one, a grouped one: all of its outputs at once
            product = reading.factor.G * reading.H
            own = product.reshape(profile.space.size, reading.per_unit, profile.space.size, -1)
            own = own.sum((1, 3))
        own = own.double().cpu()
        C += own / own.diagonal().sum().clamp(min=1e-300)
    return _greedy(C)


def _contributions(profile: Profile, tap: str) -> Tensor | None:
    """Products of two channels' contributions, summed over sampled places of the output."""
    generator = profile.generator()
    look = profile.look(tap)
    found = patches_and_weights(look, _ROWS, generator)
    if found is None:
        return None
    X, W = found
    channel = torch.randint(len(W), (len(X),), generator=generator).to(W.device)
    parts = [
        (x * W[c]).sum(-1) for x, c in zip(X.split(256), channel.split(256), strict=True)
    ]  # (rows, columns)
    single = summed_by_unit(torch.cat(parts), look, profile)
    return single.T @ single


def _greedy(C: Tensor) -> Ranking:
    """The order of dropping, reversed: each time what all dropped contributed grows least."""
    size = len(C)
    growth = C.diagonal().clone()  # by how much ||sum of the dropped|| ** 2 grows with each unit
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

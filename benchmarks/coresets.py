"""Neuron coresets (Mussay, Osadchy, Braverman, Zhou and Feldman, ICLR 2020; TNNLS 2021).

A coreset approximates what a layer passes on, `sum_j w_ij * f(p_j x)` over its neurons j, for
every input x of bounded norm and without looking at data. Neurons are drawn with replacement, in
proportion to a bound of their contribution to any output i,

    probability_j ~ (max over i of |w_ij|) * f(radius * ||p_j||),

and the weights that read a drawn neuron are multiplied by `draws_j / (draws * probability_j)`. This
makes every sum unbiased. Adapted:

- A neuron is a channel. The maximum of `|w_ij|` is replaced by the norm of all weights that read
  the channel, which is an upper bound. For ReLU the radius cancels.
- Where a batch norm rescales the neuron, its scale takes the place of `||p_j||`.
- Neurons are drawn until k different ones were seen, because k is given; draws stop before the next
  new one. With a fixed number of draws the sums are exactly unbiased.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import interpress
from interpress import Method
from interpress.extend import SELECTIONS, Profile, Ranking, ranked, selection
from interpress.surgery.shrink import shrink

NAME = "coreset"
_MOST_DRAWS = 1000  # per channel of the space; then the likeliest channels are added


def register() -> None:
    """Make `Method(selection="coreset")` known; a second call changes nothing."""
    if NAME not in SELECTIONS:
        selection(NAME)(coreset)


def coreset(profile: Profile) -> Ranking:
    """Rank channels in the random order in which they are first drawn."""
    p = probabilities(profile)
    # ranking by probability over exponential noise gives the order of first draws
    noise = torch.empty_like(p).exponential_(generator=profile.generator())
    return ranked(p / noise)


def probabilities(profile: Profile) -> Tensor:
    """Return the probability of every channel to be drawn; no data are used."""
    scales = [rows.abs().sum(1) for rows in profile.producers.scales()]
    sizes = torch.stack(scales).sum(0) if scales else profile.producers.norms(2)
    readers = torch.zeros(profile.space.size, dtype=torch.float64)
    for view in profile.views:
        squares = view.summed_by_unit(view.H.diagonal()).double().cpu()
        readers += squares / squares.sum().clamp(min=1e-300)
    bounds = sizes * readers.sqrt()
    total = float(bounds.sum())
    return bounds / total if total > 0 else torch.full_like(bounds, 1 / len(bounds))


def draw(p: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return (channels,) factors `draws_j / (draws * p_j)` with `count` of them above zero.

    If improbable channels do not turn up, the likeliest ones left are added with a factor of 1.
    """
    draws = torch.multinomial(p, _MOST_DRAWS * len(p), replacement=True, generator=generator)
    first = torch.full((len(p),), len(draws))
    first.scatter_reduce_(0, draws, torch.arange(len(draws)), "amin")
    # before the first draw of one channel too many
    stop = int(first.sort().values[count]) if count < len(p) else len(draws)
    factors = weights_of(draws[:stop], p)
    missing = count - int((factors > 0).sum())
    if missing > 0:
        left = torch.where(factors > 0, -1.0, p)
        factors[left.topk(missing).indices] = 1.0
    return factors


def weights_of(draws: Tensor, p: Tensor) -> Tensor:
    """Return the factors of all channels for these draws; their expectation is 1."""
    counts = torch.bincount(draws, minlength=len(p)).to(p)
    return torch.where(counts > 0, counts / (len(draws) * p), 0.0)


def reweighted(analysis: interpress.Analysis, keep: float) -> nn.Module:
    """Return the network of coresets at a budget, the same fraction of every layer."""
    register()
    method = Method(selection=NAME, allocation="constant", refit=False, correct=False)
    result = analysis.compress(flops=keep, method=method, progress=False)
    kept, factors = {}, {}
    for name, width in result.widths.items():
        profile = result.orders.profiles[name]
        if width < profile.space.size:
            factors[name] = draw(probabilities(profile), width, profile.generator())
            kept[name] = torch.nonzero(factors[name]).reshape(-1)
    T = {}
    for name, index in kept.items():
        space = result.spaces[name]
        for tap in space.taps:
            if result.spaces.taps[tap].size == space.size:
                diagonal = torch.diag(factors[name])
                T[tap] = diagonal[index]  # (kept, channels)
    return shrink(result.spaces, kept, T)

"""`pfp`: channels are drawn in proportion to their largest fraction of a sum."""

import itertools

import torch
from torch import Tensor

from interpress.selection.profile import Profile
from interpress.selection.rules.pfp import _largest_fractions, pfp


def test_sensitivities_are_the_largest_fractions_of_a_sum() -> None:
    torch.manual_seed(0)
    X, W = torch.rand(20, 5, 2), torch.randn(3, 5, 2)
    W[:, 2] = 0
    fractions = _largest_fractions(X, W, lambda terms: terms)
    one_by_one: list[Tensor] = []
    for row, weight, sign in itertools.product(X, W, (1, -1)):
        terms = (sign * row * weight).clamp(min=0).sum(1)
        one_by_one.append(terms / terms.sum().clamp(min=1e-30))
    torch.testing.assert_close(fractions, torch.stack(one_by_one).amax(0).double())
    assert fractions[2] == 0  # never drawn before the others


def test_the_seed_draws_the_order(profiles: dict[str, Profile]) -> None:
    p = profiles["inner.0"]
    other = Profile(p.space, p.views, p.producers, p.activations, seed=p.seed + 1)
    assert torch.equal(pfp(p).units, pfp(p).units)
    assert not torch.equal(pfp(p).units, pfp(other).units)

"""`random`: the seed draws the order."""

import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.random import random


def test_the_seed_draws_the_order(profiles: dict[str, Profile]) -> None:
    p = profiles["inner.0"]
    other = Profile(p.space, p.views, p.producers, p.activations, seed=p.seed + 1)
    assert torch.equal(random(p).units, random(p).units)
    assert not torch.equal(random(p).units, random(other).units)

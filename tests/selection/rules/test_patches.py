"""`patches`: backward elimination with all inputs of the consumers free."""

from dataclasses import replace

import torch
from torch import nn

import interpress
from interpress.linalg.elimination import Consumer, eliminate
from interpress.selection.profile import Profile, profiles_of
from interpress.selection.rules.patches import patches
from interpress.selection.rules.weights import weights


def test_the_order_is_that_of_backward_elimination(profiles: dict[str, Profile]) -> None:
    profile = profiles["inner.0"]
    consumers = [view.patches for view in profile.views if view.patches is not None]
    assert len(consumers) == 1
    units, errors = eliminate(consumers)
    ranking = patches(profile)
    assert torch.equal(ranking.units, units)
    assert ranking.errors is not None
    assert torch.equal(ranking.errors, errors)


def test_half_of_redundant_channels_can_be_dropped() -> None:
    """64 channels of rank 20: many are dropped per round, and nearly as well as one by one."""
    generator = torch.Generator().manual_seed(7)
    base = torch.randn(500, 20, generator=generator, dtype=torch.float64)
    X = base @ torch.randn(20, 64, generator=generator, dtype=torch.float64)
    G, U = X.T @ X, torch.randn(64, 8, generator=generator, dtype=torch.float64)
    energy = float((U * (G @ U)).sum())
    units, errors = eliminate([Consumer(G, U, torch.arange(64).reshape(64, 1), energy)])
    assert float(errors[32]) < 0.02
    assert bool((errors.diff() <= 0).all())
    assert sorted(units.tolist()) == list(range(64))


def test_without_patches_the_order_is_that_of_weights(profiles: dict[str, Profile]) -> None:
    p = profiles["hidden"]
    (view,) = p.views
    hidden = replace(view, _variance=lambda: None, _patch_consumer=lambda: None)
    without = Profile(p.space, (hidden,), p.producers, p.activations)
    assert torch.equal(patches(without).units, weights(without).units)


def test_dead_channels_are_dropped_first() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    with torch.no_grad():
        model[0].bias[[2, 9]] = -1e3
    study = interpress.analyze(model, torch.randn(200, 6)).study
    (profile,) = profiles_of(study.spaces, study.statistics).values()
    ranking = patches(profile)
    assert sorted(ranking.units[-2:].tolist()) == [2, 9]
    assert ranking.errors is not None
    assert ranking.errors[-3:].tolist() == [0.0] * 3

"""`weights`: every channel kept lowers the consumers' error most."""

from dataclasses import replace

import pytest
import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.pivoting import pivoting
from interpress.selection.rules.weights import weights


def test_the_first_channels_are_the_best_greedy_choices(profiles: dict[str, Profile]) -> None:
    profile = profiles["hidden"]
    units = weights(profile).units.tolist()
    for k in range(3):

        def error(unit: int, kept: list[int] = units[:k]) -> float:
            others = [other for other in units if other != unit and other not in kept]
            return profile.squared_error(torch.tensor([*kept, unit, *others]), len(kept) + 1)

        errors = {unit: error(unit) for unit in units[k:]}
        assert errors[units[k]] == pytest.approx(min(errors.values()), rel=1e-6)


@pytest.mark.parametrize("name", ["inner.0", "hidden"])
def test_the_consumers_lose_less_than_with_pivoting(
    name: str, profiles: dict[str, Profile]
) -> None:
    profile = profiles[name]
    width = profile.space.size // 4
    aware, blind = (
        profile.squared_error(rule(profile).units, width) for rule in (weights, pivoting)
    )
    assert aware < blind


def test_consumers_that_ignore_the_channels_leave_the_order_to_pivoting(
    profiles: dict[str, Profile],
) -> None:
    p = profiles["hidden"]
    (view,) = p.views
    ignored = replace(
        view, _variance=lambda: None, _weight_gram=lambda: torch.zeros(64, 64),
        _patch_consumer=lambda: None,
    )  # fmt: skip
    blind = Profile(p.space, (ignored,), p.producers, p.activations)
    assert torch.equal(weights(blind).units, pivoting(p).units)

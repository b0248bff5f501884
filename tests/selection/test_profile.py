"""What a selection may look at: factors and weights of all taps of a space."""

from __future__ import annotations

import pytest
import torch

from interpress import Analysis, ArgumentError
from interpress.selection.profile import Profile, profiles_of


def test_a_profile_has_one_view_per_tap(analysis: Analysis, profiles: dict[str, Profile]) -> None:
    for name, profile in profiles.items():
        assert profile.space is analysis.spaces[name]
        assert [view.tap for view in profile.views] == list(profile.space.taps)
    assert len(profiles["stem.0"].views) == 2
    assert not any(profile.in_blocks for profile in profiles.values())


def test_several_taps_count_equally(profiles: dict[str, Profile]) -> None:
    profile = profiles["inner.0"]
    (view,) = profile.views
    doubled = Profile(profile.space, (view, view), profile.producers, profile.activations)
    assert torch.equal(profile.factor.G, view.factor.G)
    expected = 2 * view.factor.G / view.factor.G.trace()
    torch.testing.assert_close(doubled.factor.G, expected)
    units = torch.arange(48)
    torch.testing.assert_close(doubled.squared_errors(units), 2 * profile.squared_errors(units))


@pytest.mark.parametrize("name", ["stem.0", "inner.0", "hidden"])
def test_one_width_costs_as_much_as_in_the_list_of_all(
    name: str, profiles: dict[str, Profile]
) -> None:
    profile = profiles[name]
    units = torch.randperm(profile.space.size, generator=torch.Generator().manual_seed(0))
    errors = profile.squared_errors(units)
    assert errors.shape == (profile.space.size + 1,)
    for width in (1, profile.space.size // 2, profile.space.size):
        assert profile.squared_error(units, width) == pytest.approx(
            float(errors[width]), rel=1e-4, abs=1e-9
        )


def test_the_generator_depends_on_the_seed_and_the_space(profiles: dict[str, Profile]) -> None:
    a, b = profiles["inner.0"], profiles["hidden"]
    other = Profile(a.space, a.views, a.producers, a.activations, seed=a.seed + 1)
    draws = [torch.rand(4, generator=profile.generator()) for profile in (a, a, b, other)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])


def test_without_data_there_are_no_activations(analysis: Analysis) -> None:
    study = analysis.study
    profile = profiles_of(study.spaces, study.statistics)["inner.0"]
    with pytest.raises(ArgumentError, match=r"needs activations at .* no calibration data"):
        profile.activations(profile.views[0].tap)

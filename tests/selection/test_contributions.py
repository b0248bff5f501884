"""Contributions of single channels: together they are what the consumer computes."""

from __future__ import annotations

import torch
from torch import nn

from interpress import Analysis
from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile

ALL = 10**9


def test_contributions_add_up_to_the_consumers_output(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    profile = profiles["inner.0"]
    sample = profile.activations(profile.views[0].tap)
    parts = patches_and_weights(sample, ALL, profile.generator())
    assert parts is not None
    X, W = parts
    convolution = analysis.study.original.get_submodule("back.0")
    with torch.no_grad():
        expected = convolution(sample.operand).movedim(1, -1).flatten(0, -2)
    outputs = torch.einsum("rct,oct->ro", X, W)
    torch.testing.assert_close(outputs, expected, atol=1e-4, rtol=1e-4)


def test_flattened_channels_are_gathered_for_their_consumer(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    """The linear layer after the flatten reads every channel at four positions."""
    profile = profiles["stem.0"]
    (tap,) = [view.tap for view in profile.views if view.tap.startswith("hidden")]
    sample = profile.activations(tap)
    parts = patches_and_weights(sample, ALL, profile.generator())
    assert parts is not None
    X, W = parts
    hidden = analysis.study.original.get_submodule("hidden")
    with torch.no_grad():
        expected = nn.functional.linear(sample.operand, hidden.weight)  # type: ignore[arg-type]
    assert X.shape[1:] == (24, 4)
    outputs = torch.einsum("rct,oct->ro", X, W)
    torch.testing.assert_close(outputs, expected, atol=1e-4, rtol=1e-4)
    by_unit = summed_by_unit(torch.einsum("rct,oct->roc", X, W), sample, profile)
    assert by_unit.shape == (len(X), 64, 24)
    torch.testing.assert_close(by_unit.sum(-1), expected, atol=1e-4, rtol=1e-4)


def test_rows_are_sampled_and_the_same_for_one_generator(profiles: dict[str, Profile]) -> None:
    profile = profiles["inner.0"]
    sample = profile.activations(profile.views[0].tap)
    first, again = (patches_and_weights(sample, 100, profile.generator()) for _ in range(2))
    assert first is not None
    assert again is not None
    assert len(first[0]) == 100
    assert torch.equal(first[0], again[0])

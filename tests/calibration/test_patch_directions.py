"""A few directions per channel that stand for the large patches of a convolution."""

from __future__ import annotations

import torch

from interpress.calibration.patch_directions import main_directions

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(4000, 3, 5, generator=GENERATOR) @ torch.randn(3, 5, 5, generator=GENERATOR).mean(0)
W = torch.randn(7, 3, 5, generator=GENERATOR)


def approximated(channel: int, count: int) -> torch.Tensor:
    """Return what the directions make of the outputs that one channel contributes."""
    basis, dual = main_directions(X.flatten(1), W, count)
    centred = X[:, channel] - X[:, channel].mean(0)
    return centred @ basis[channel] @ dual[channel].T @ W[:, channel].T


def test_the_outputs_of_a_channel_are_approximated_best() -> None:
    for channel in range(3):
        outputs = (X[:, channel] - X[:, channel].mean(0)) @ W[:, channel].T
        error = (approximated(channel, 2) - outputs).square().sum()
        best = torch.linalg.svdvals(outputs.double())[2:].square().sum()
        assert float(error) <= 1.01 * float(best)


def test_all_directions_leave_the_outputs_as_they_are() -> None:
    outputs = (X[:, 1] - X[:, 1].mean(0)) @ W[:, 1].T
    torch.testing.assert_close(approximated(1, 5), outputs, rtol=1e-3, atol=1e-3)


def test_a_direction_that_the_weights_do_not_read_is_left_out() -> None:
    patches = torch.randn(500, 2, 3, generator=GENERATOR) * torch.tensor([1.0, 100.0, 1.0])
    weights = torch.randn(4, 2, 3, generator=GENERATOR) * torch.tensor([1.0, 0.0, 1.0])
    basis, dual = main_directions(patches.flatten(1), weights, 2)
    kept = basis @ dual.mT  # (channels, kernel, kernel): what the directions keep of the weights
    torch.testing.assert_close(kept @ weights.permute(1, 2, 0), weights.permute(1, 2, 0))

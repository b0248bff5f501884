"""Moments and variances that are collected batch by batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interpress.calibration.statistics import OutputVariance, PatchMoments

X = 3 + torch.randn(90, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def moments_of(X: Tensor, sizes: int, basis: Tensor | None = None) -> PatchMoments:
    size = X.shape[1] if basis is None else basis.shape[0] * basis.shape[2]
    moments = PatchMoments.empty(size, X.dtype, X.device)
    moments.basis = basis
    for rows in X.split(sizes):
        moments.add(rows, torch.arange(len(rows)) % 2 == 1)
    return moments


@pytest.mark.parametrize("sizes", [7, 90])
def test_moments_are_those_of_all_rows_together(sizes: int) -> None:
    moments = moments_of(X, sizes)
    assert sum(moments.rows) == 90
    centred = X - X.mean(0)
    torch.testing.assert_close(moments.moments(centred=True), centred.T @ centred / 90)
    torch.testing.assert_close(moments.moments(centred=False), X.T @ X / 90)


def test_every_half_has_its_own_moments() -> None:
    moments = moments_of(X, 90)
    assert moments.rows == [45, 45]
    for half, rows in enumerate((X[::2], X[1::2])):
        centred = rows - rows.mean(0)
        covariance = moments.moments(centred=True, half=half)
        torch.testing.assert_close(covariance, centred.T @ centred / 45)
        torch.testing.assert_close(moments.moments(centred=False, half=half), rows.T @ rows / 45)


def test_a_large_mean_costs_no_digits() -> None:
    far = (X + 1e4).float()
    centred = far.double() - far.double().mean(0)
    covariance = moments_of(far, 30).moments(centred=True).double()
    torch.testing.assert_close(covariance, centred.T @ centred / 90, rtol=1e-4, atol=1e-5)


def test_rows_are_projected_onto_a_basis_channel_by_channel() -> None:
    """Two channels with three kernel positions each, projected onto two directions."""
    generator = torch.Generator().manual_seed(1)
    basis = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    moments = moments_of(X, 40, basis)
    projected = torch.cat([X[:, :3] @ basis[0], X[:, 3:] @ basis[1]], 1)
    torch.testing.assert_close(moments.moments(centred=False), projected.T @ projected / 90)


@pytest.mark.parametrize(("shape", "channel"), [((8, 5), -1), ((8, 3, 5), -1), ((8, 5, 4, 4), 1)])
def test_the_variance_is_summed_over_channels(shape: tuple[int, ...], channel: int) -> None:
    values = 7 + torch.randn(3, *shape, generator=torch.Generator().manual_seed(2))
    variance = OutputVariance()
    for batch in values:
        variance.add(batch, channel)
    by_channel = values.double().flatten(0, 1).movedim(channel, 0).flatten(1)
    assert variance.variance == pytest.approx(float(by_channel.var(1, correction=0).sum()))


def test_only_the_first_images_of_a_batch_count() -> None:
    images = X[:, :, None, None]
    few, many = OutputVariance(), OutputVariance()
    few.add(images[:8], 1)
    many.add(torch.cat([images[:8], 100 * images[8:]]), 1)
    assert few.variance == many.variance


def test_positions_that_the_mask_excludes_do_not_count() -> None:
    tokens = X.reshape(10, 9, 6)
    mask = torch.arange(9) < torch.arange(1, 11)[:, None].clamp(max=9)
    masked, alone = OutputVariance(), OutputVariance()
    masked.add(torch.where(mask[..., None], tokens, 100.0), -1, [mask])
    alone.add(tokens[mask], -1)
    assert masked.variance == pytest.approx(alone.variance)

"""Two halves of the rows: errors on the other half, and the prior that they choose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interpress.calibration.halves import LOCAL, RIDGES, Halves, Prior
from interpress.linalg.factor import RFactor

N = 8
KEPT = torch.tensor([0, 2, 4, 6])
DROPPED = torch.tensor([1, 3, 5, 7])


def normal(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def correlated(rows: int, seed: int = 0, noise: float = 0.3) -> Tensor:
    """Return rows whose odd columns are mixtures of the even ones, with noise."""
    Z = normal(rows, N, seed)
    Z[:, DROPPED] = Z[:, KEPT] @ normal(4, 4, seed=99) + noise * Z[:, DROPPED]
    return Z


def halves_of(Z: Tensor, local: Tensor | None = None) -> Halves:
    """Return the halves of rows; every other row is in the second half."""
    first, second = Z[::2], Z[1::2]
    totals = torch.stack([first.sum(0), second.sum(0)])
    factor = RFactor.from_root(Z, len(Z))
    return Halves(factor, second.T @ second, totals, (len(first), len(second)), local)


def solved(Z: Tensor, ridge: float = 0.0) -> Tensor:
    """Return `T` by least squares on the rows themselves."""
    size = ridge * float(Z.square().mean()) * len(Z)
    A = torch.cat([Z[:, KEPT], size**0.5 * torch.eye(len(KEPT), dtype=Z.dtype)])
    b = torch.cat([Z[:, DROPPED], torch.zeros(len(KEPT), len(DROPPED), dtype=Z.dtype)])
    return torch.linalg.lstsq(A, b).solution


def residual(fitted: Tensor, other: Tensor, ridge: float) -> Tensor:
    return other[:, DROPPED] - other[:, KEPT] @ solved(fitted, ridge)


@pytest.mark.parametrize("ridge", [0.0, 1e-2, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_is_the_one_on_the_other_half(ridge: float, weighted: bool) -> None:
    Z = correlated(25)
    U = normal(N, 3, seed=5)
    expected = 0.0
    for fitted, other in ((Z[::2], Z[1::2]), (Z[1::2], Z[::2])):
        lost = residual(fitted, other, ridge)
        lost = lost @ U[DROPPED] if weighted else lost
        expected += float(lost.square().sum()) / len(other) / 2
    error = halves_of(Z).error(KEPT, Prior(ridge), U @ U.T if weighted else None)
    assert error == pytest.approx(expected, rel=1e-5)


def test_the_relative_error_is_the_larger_one_of_both_directions() -> None:
    Z = correlated(40)
    halves = halves_of(Z)
    assert halves.prior.local == 0
    ratios = []
    for fitted, other in ((Z[::2], Z[1::2]), (Z[1::2], Z[::2])):
        lost = residual(fitted, other, halves.prior.ridge)
        norms = [torch.linalg.matrix_norm(M, 2) for M in (lost, other)]
        ratios.append(float(norms[0] / norms[1]))
    assert halves.relative_error(KEPT) == pytest.approx(max(ratios), rel=1e-5)
    assert halves_of(Z[:1]).relative_error(KEPT) == 1.0


def test_the_chosen_prior_is_the_best_on_other_rows() -> None:
    fresh = correlated(4000, seed=1, noise=3.0)
    few = halves_of(correlated(14, noise=3.0))
    losses = {
        ridge: float(
            (fresh[:, DROPPED] - fresh[:, KEPT] @ solved(correlated(14, noise=3.0), ridge))
            .square()
            .sum()
        )
        for ridge in RIDGES
    }
    assert few.prior.ridge == min(losses, key=losses.__getitem__) == RIDGES[-1]
    assert halves_of(correlated(200, noise=0.01)).prior == Prior(RIDGES[0])


def test_moments_from_before_an_average_are_used_if_they_help() -> None:
    """They come from many rows, of the same mixture or of an unrelated one."""
    few = correlated(10, noise=1.0)
    for noise, seed, helps in ((1.0, 0, True), (1.0, 7, False)):
        many = correlated(4000, seed=3, noise=noise)
        if not helps:
            many[:, DROPPED] = many[:, KEPT] @ normal(4, 4, seed=seed)
        moments = (many.T @ many / len(many)).expand(2, N, N)
        prior = halves_of(few, moments).prior
        assert (prior.local > 0) == helps
        assert prior.local in (0.0, *LOCAL)


def test_a_prior_is_added_in_proportion_to_the_moments() -> None:
    Z = correlated(12)
    G, local = Z.T @ Z, torch.eye(N, dtype=Z.dtype).expand(2, N, N)
    size = float(G.diagonal().mean())
    added = halves_of(Z, local).with_prior(Prior(0.1, 2.0)).G - G
    torch.testing.assert_close(added, (0.1 + 2.0) * size * torch.eye(N, dtype=Z.dtype))
    one = halves_of(Z).with_prior(Prior(), half=1)
    torch.testing.assert_close(one.G, Z[1::2].T @ Z[1::2])


def test_without_need_there_is_no_prior() -> None:
    few, many = halves_of(correlated(100)), halves_of(correlated(16 * N))
    assert not few.many
    assert many.many
    assert many.for_kept(KEPT) is many.factor
    torch.testing.assert_close(few.for_kept(KEPT).G, few.with_prior(few.prior).G)
    torch.testing.assert_close(many.for_kept(KEPT, half=0).G, many.moments(0) * many.rows[0])


def test_columns_that_depend_exactly_need_no_prior() -> None:
    exact = halves_of(correlated(30, noise=0.0))
    assert exact.for_kept(KEPT) is exact.factor
    assert exact.error(KEPT, Prior()) < 1e-9
    noise = halves_of(normal(10, N))  # five rows per half look dependent, but are not
    assert not torch.equal(noise.for_kept(KEPT).G, noise.factor.G)


def test_rows_that_say_nothing_are_distrusted() -> None:
    assert halves_of(correlated(60)).distrust is None
    assert halves_of(torch.zeros(60, N, dtype=torch.float64)).distrust is None
    one_row = halves_of(normal(1, N))
    assert not one_row.both
    assert one_row.distrust is not None
    assert "its 1 rows cannot be divided" in one_row.distrust
    # two unrelated rows: from one of them, the other is predicted worse than by zero
    opposite = torch.cat([torch.ones(1, N), torch.ones(1, N) * (-1.0) ** torch.arange(N)]).double()
    distrust = halves_of(opposite).distrust
    assert distrust is not None
    assert "on rows that were not fitted" in distrust


def test_selected_columns_keep_everything_else() -> None:
    Z = correlated(20)
    local = torch.stack([Z.T @ Z, 2 * Z.T @ Z])
    columns = torch.tensor([5, 0, 3])
    chosen = halves_of(Z, local).select(columns)
    expected = halves_of(Z[:, columns], local[:, columns][:, :, columns])
    torch.testing.assert_close(chosen.factor.G, expected.factor.G)
    torch.testing.assert_close(chosen.moments(0), expected.moments(0))
    torch.testing.assert_close(chosen.moments(1), expected.moments(1))
    assert torch.equal(chosen.totals, expected.totals)
    assert chosen.rows == expected.rows
    assert chosen.local is not None
    assert expected.local is not None
    assert torch.equal(chosen.local, expected.local)
    whole = halves_of(Z)
    assert whole.select(torch.arange(N)) is whole

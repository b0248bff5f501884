"""Greedy Cholesky factorizations: the identity `R.T @ R == G`, and torch against LAPACK."""

import pytest
import torch
from benchmarks.matrices import FAMILIES
from tests.linalg.matrices import normal

from interpress.linalg.cholesky import (
    Pivots,
    _eliminate,
    _pivoted_by_lapack,
    cholesky_in_order,
    pivoted_cholesky,
    weighted_cholesky,
)


def assert_factors(pivots: Pivots, G: torch.Tensor) -> None:
    """Assert that `R` is upper trapezoidal and `R.T @ R` equals `G` in the picked order."""
    assert sorted(pivots.order.tolist()) == list(range(len(G)))
    assert torch.equal(pivots.R, pivots.R.triu())
    permuted = G[pivots.order][:, pivots.order]
    torch.testing.assert_close(pivots.R.T @ pivots.R, permuted, rtol=1e-10, atol=1e-10)


def test_every_variant_factors_the_gram_matrix() -> None:
    Z = normal(90, 50)
    G, order = Z.T @ Z, torch.arange(50).roll(3)
    assert_factors(pivoted_cholesky(G, 0.0), G)
    assert_factors(weighted_cholesky(G, torch.eye(50, dtype=torch.float64), 0.0), G)
    in_order = cholesky_in_order(G, order, 0.0)
    assert_factors(in_order, G)
    assert torch.equal(in_order.order, order)


def test_dependent_columns_are_moved_to_the_end() -> None:
    Z = normal(30, 6)
    Z[:, 2] = Z[:, 0] - Z[:, 1]
    G = Z.T @ Z
    pivots = cholesky_in_order(G, torch.arange(6), 1e-9)
    assert pivots.order.tolist() == [0, 1, 3, 4, 5, 2]
    assert pivots.count == 5
    assert_factors(pivots, G)


@pytest.mark.parametrize(
    "name", ["random", "decaying", "activations", "duplicate_columns", "zero_columns"]
)
def test_blocked_torch_and_lapack_agree(name: str) -> None:
    """The algorithm for a GPU, run on the CPU with more columns than one block."""
    A = FAMILIES[name](150, 3)
    G = A.T @ A
    smallest = 1e-13 * float(G.diagonal().max())
    blocked, reference = _eliminate(G, smallest), _pivoted_by_lapack(G, smallest)
    assert blocked.count == reference.count
    certain = int((reference.R.diagonal() > 1e-5 * reference.R[0, 0]).sum())
    assert torch.equal(blocked.order[:certain], reference.order[:certain])
    torch.testing.assert_close(
        blocked.R[:certain, :certain], reference.R[:certain, :certain], rtol=1e-6, atol=1e-10
    )

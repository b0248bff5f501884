"""Backward elimination against ridge regressions that are solved anew."""

import pytest
import torch
from tests.linalg.matrices import normal
from torch import Tensor

from interpress.linalg.elimination import RIDGE, Consumer, eliminate


def ridge_error(consumer: Consumer, dropped: set[int]) -> float:
    """Return the relative error of the best weights without the dropped blocks."""
    G, U = consumer.G, consumer.U
    size = G.diagonal().mean()
    A = G / size + RIDGE * torch.eye(len(G), dtype=G.dtype)
    dropped_inputs = {int(i) for block in dropped for i in consumer.blocks[block] if i >= 0}
    kept = [i for i in range(len(G)) if i not in dropped_inputs]
    change = U.clone()
    if kept:
        change[kept] -= torch.linalg.solve(A[kept][:, kept], A[kept] @ U)
    return float((change * (A @ change)).sum() * size) / consumer.energy


def consumer(rows: int, blocks: Tensor, seed: int, others: int = 0) -> Consumer:
    """Return a consumer of the blocks and of `others` inputs that are in no block."""
    u = int((blocks >= 0).sum()) + others
    X = normal(rows, u, seed)
    X[:, u // 2 :] += X[:, : u - u // 2]
    return Consumer(X.T @ X, normal(u, 4, seed + 1), blocks, energy=2.0)


EVEN = torch.arange(12).reshape(6, 2)
UNEVEN = torch.tensor([[0, 1, 2], [3, -1, -1], [-1, -1, -1], [4, 5, -1], [6, 7, 8], [9, -1, -1]])


@pytest.mark.parametrize("second", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_every_drop_is_the_cheapest_one_and_its_error_is_exact(second: Tensor) -> None:
    """The blocks of a consumer may have different numbers of inputs, or none."""
    both = ((0, EVEN), (5, second))
    consumers = [consumer(200, blocks, seed, others=1) for seed, blocks in both]
    order, errors = eliminate(consumers)
    assert sorted(order.tolist()) == list(range(6))
    assert errors[-1] == 0.0
    dropped: set[int] = set()
    for k in range(5, -1, -1):
        costs = {
            block: sum(ridge_error(one, dropped | {block}) for one in consumers)
            for block in set(range(6)) - dropped
        }
        best = min(costs, key=costs.__getitem__)
        assert int(order[k]) == best
        assert float(errors[k]) == pytest.approx(costs[best], rel=1e-8)
        dropped.add(best)


def test_dependent_blocks_are_dropped_first_without_error() -> None:
    blocks = torch.arange(8).reshape(8, 1)
    order, errors = eliminate([consumer(100, blocks, 0)], dependent=torch.tensor([6, 2]))
    assert order[-2:].tolist() == [2, 6]
    assert errors[6:].tolist() == [0.0, 0.0, 0.0]
    assert bool((errors.diff() <= 0).all())


def test_the_total_error_of_many_blocks_is_exact() -> None:
    """Several blocks are dropped per round; the sum over all rounds is still the exact error."""
    blocks = torch.arange(64).reshape(64, 1)
    one = consumer(300, blocks, 3)
    order, errors = eliminate([one])
    assert sorted(order.tolist()) == list(range(64))
    for k in (0, 16, 32):
        expected = ridge_error(one, set(order[k:].tolist()))
        assert float(errors[k]) == pytest.approx(expected, rel=0.1 if k else 1e-8)


def test_strongly_coupled_blocks_are_not_dropped_together() -> None:
    """Two equal inputs replace each other; dropping both would cost the output."""
    blocks = torch.arange(40).reshape(40, 1)
    X = normal(400, 40)
    X[:, 1] = X[:, 0]
    U = torch.full((40, 1), 1.0, dtype=torch.float64)
    order, _ = eliminate([Consumer(X.T @ X, U, blocks, energy=1.0)])
    positions = {block: position for position, block in enumerate(order.tolist())}
    assert max(positions[0], positions[1]) == 39  # one of them is dropped first
    assert min(positions[0], positions[1]) < 10  # the other one is needed

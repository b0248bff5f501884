"""Greedy selection of blocks against brute force."""

import torch
from tests.linalg.matrices import normal
from torch import Tensor

from interpress.linalg.blocks import order_blocks


def weighted_error(Z: Tensor, U: Tensor, kept: Tensor) -> float:
    """Return `||(Z - Z[:, kept] @ T) @ U||_F ** 2` with the least-squares `T`."""
    T = torch.linalg.lstsq(Z[:, kept], Z).solution
    return float(((Z - Z[:, kept] @ T) @ U).square().sum())


def test_order_equals_brute_force_over_two_consumers() -> None:
    blocks = torch.arange(12).reshape(4, 3)
    consumers = [(normal(50, 12, seed), normal(12, 5, seed + 10)) for seed in (0, 1)]
    order = order_blocks([(Z.T @ Z, U @ U.T, blocks) for Z, U in consumers]).tolist()
    kept: list[int] = []
    for _ in range(4):
        errors = {}
        for block in set(range(4)) - set(kept):
            columns = blocks[[*kept, block]].reshape(-1)
            errors[block] = sum(
                weighted_error(Z, U, columns) / float((Z @ U).square().sum()) for Z, U in consumers
            )
        kept.append(min(errors, key=errors.__getitem__))
    assert order == kept


def test_duplicate_of_a_selected_block_comes_last() -> None:
    Z = normal(50, 9)
    Z[:, 6:] = Z[:, :3]  # block 2 equals block 0
    blocks = torch.arange(9).reshape(3, 3)
    order = order_blocks([(Z.T @ Z, torch.eye(9, dtype=torch.float64), blocks)]).tolist()
    assert order[-1] in (0, 2)
    assert sorted(order) == [0, 1, 2]

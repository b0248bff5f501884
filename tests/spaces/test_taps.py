"""Taps turn operands into matrices `Z` and back."""

from __future__ import annotations

import pytest
import torch
from tests.surgery.every_way import shrinkable_names, shrinks_every_way
from tests.zoo.checks import halved
from torch import Tensor, nn

from interpress.dryrun.inputs import random_interpolations
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.taps import Tap
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import measure_taps, prove
from interpress.surgery.shrink import shrink


def tap_of(model: nn.Module, x: Tensor, name: str) -> Tap:
    spaces = spaces_of(capture(model, x))
    (tap,) = (spaces.taps[tap] for tap in spaces[name].taps)
    return tap


def convolution_tap() -> Tap:
    return tap_of(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1)),
                  torch.randn(2, 3, 3, 2), "0")  # fmt: skip


def flattened_tap() -> Tap:
    return tap_of(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)),
                  torch.randn(2, 3, 3, 2), "0")  # fmt: skip


def test_columns_of_a_convolution_are_its_channels() -> None:
    tap = convolution_tap()
    (site,) = tap.sites
    operand = torch.randn(5, 4, 3, 2)
    Z = tap.columns(operand, site)
    assert torch.equal(Z, operand.movedim(1, -1).reshape(-1, 4))
    assert tap.rows(operand, site) == len(Z) == 5 * 3 * 2
    at = torch.tensor([0, 7, 29])
    assert torch.equal(tap.columns(operand, site, at), Z[at])
    assert Z.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr()


def test_columns_of_a_flattened_convolution_repeat_over_positions() -> None:
    tap = flattened_tap()
    (site,) = tap.sites
    operand = torch.randn(5, 24)
    Z = tap.columns(operand, site)
    assert torch.equal(Z, operand.reshape(5, 4, 6).movedim(1, -1).reshape(-1, 4))
    assert tap.rows(operand, site) == 5
    assert torch.equal(tap.columns(operand, site, torch.tensor([3])), Z[18:24])


@pytest.mark.parametrize("make", [convolution_tap, flattened_tap])
def test_replaced_operands_have_the_projected_columns(make) -> None:
    tap = make()
    (site,) = tap.sites
    shape = (5, 4, 3, 2) if make is convolution_tap else (5, 24)
    operand = torch.randn(shape, dtype=torch.float64)
    kept, T = torch.tensor([0, 2]), torch.randn(2, 4, dtype=torch.float64)
    replaced = tap.replaced(operand, site, kept, T)
    assert replaced.shape == operand.shape
    expected = tap.columns(operand, site)[:, kept] @ T
    torch.testing.assert_close(tap.columns(replaced, site), expected)


class MergedHeads(nn.Module):
    """An attention that merges its heads with the batch, as older code does."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 3
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2).reshape(b * self.heads, n, -1)
            for f in (self.q, self.k, self.v)
        )
        y = torch.bmm(torch.bmm(q * 0.4, k.transpose(1, 2)).softmax(-1), v)
        return self.o(y.view(b, self.heads, n, -1).transpose(1, 2).reshape(b, n, -1))


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_heads_merged_with_the_batch(batch: int) -> None:
    torch.manual_seed(0)
    spaces = shrinks_every_way(MergedHeads(), torch.randn(batch, 5, 12))
    assert shrinkable_names(spaces) == {"k", "v", "k:heads"}
    Z = measure_taps(spaces, torch.randn(7, 5, 12).double())
    assert {len(matrix) for matrix in Z.values()} == {35}
    kept = {name: halved(spaces[name], seed=1) for name in ("k", "v", "k:heads")}
    T = random_interpolations(Cut(spaces, kept))
    cut = Cut(spaces, kept, T)
    assert prove(spaces, cut, shrink(spaces, kept, T), torch.randn(6, 5, 12).double())

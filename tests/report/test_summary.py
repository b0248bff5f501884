"""The summary fits 80 columns whatever the names, and says what stays whole and why."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import Result

STAGE = "the_first_stage_of_the_network"


class LongNames(nn.Module):
    """Two outputs, layers with long names, and one that is excluded."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Conv2d(c, 16, 3, padding=1), nn.ReLU()) for c in (3, 16, 16, 16)]
        self.an_encoder_with_a_long_name = nn.ModuleDict({STAGE: nn.Sequential(*blocks)})
        self.head, self.box = nn.Linear(16, 5), nn.Linear(16, 4)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.an_encoder_with_a_long_name[STAGE](images).mean((2, 3))
        return {"logits": self.head(features), "box": self.box(features)}


@pytest.fixture(scope="module")
def result() -> Result:
    torch.manual_seed(0)
    return interpress.compress(
        LongNames().eval(), torch.randn(80, 3, 8, 8), flops=0.6, exclude=["*.2.0"], lowrank=True,
        distill=0.005, progress=False,
    )  # fmt: skip


def test_it_fits_and_numbers_are_whole(result: Result) -> None:
    lines = result.summary().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(f"{result.before.flops:,}" in line for line in lines)
    rows = [line.split("│")[1:-1] for line in lines if line.count("│") == 7]
    assert len(rows) == len(result.plan)
    for cells, row in zip(rows, result.plan, strict=True):
        name, before, after, kept = (cell.strip() for cell in cells[:4])
        assert "…" in name
        assert name.endswith(row.name[-3:])
        assert (before, after) == (str(row.before), str(row.after))
        assert kept == f"{row.after / row.before:.0%}"


def test_it_says_what_stays_whole_why_and_how_much(result: Result) -> None:
    words = " ".join(result.summary().split())
    fixed = 1 - result.spaces.cost.shrinkable_share()
    frozen = len(result.spaces.frozen)
    assert f"{frozen} spaces are frozen and stay whole: {fixed:.1%} of the FLOPs" in words
    for share in result.spaces.frozen_shares():
        assert share.family.split()[0] in words
        assert f" {len(share.spaces)} {share.flops:.0%} " in words
    assert "leave the module out of exclude" in words


def test_every_loss_says_what_it_is(result: Result) -> None:
    words = " ".join(result.summary().split())
    assert " nats" in words
    assert "held-out error of all outputs" in words
    assert "loss of all outputs" in words

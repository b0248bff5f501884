"""Corresponding spaces of all blocks get the same width."""

from __future__ import annotations

import pytest
import torch
from tests.pretrained.models import build, inputs
from torch import Tensor, nn

import interpress
from interpress import ArgumentError, Method
from interpress.pretrained.width_groups import config_groups, groups_of_blocks

QUICK = Method(allocation="marginal", refit=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 40), nn.Linear(40, 12)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 12))
    return nn.Sequential(*stem, nn.Sequential(*(Block() for _ in range(3))), nn.Linear(12, 4))


DATA = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))


def test_blocks_are_told_by_their_class_and_place() -> None:
    spaces = interpress.find_spaces(network(), DATA[:4])
    groups = [group for group in groups_of_blocks(spaces) if len(group) > 1]
    assert groups == [("3.0.up", "3.1.up", "3.2.up")]
    assert config_groups(spaces) is None


@pytest.mark.parametrize("allocation", ["marginal", "measured", "constant", "iterative", "halfway"])
def test_every_allocation_keeps_the_members_of_a_group_equal(allocation: str) -> None:
    analysis = interpress.analyze(network(), DATA, progress=False)
    method = Method(allocation=allocation, refit=False)
    result = analysis.compress(flops=0.6, same_widths=True, round_to=4, method=method)
    widths = {result.widths[f"3.{number}.up"] for number in range(3)}
    assert len(widths) == 1
    assert widths.pop() % 4 == 0
    assert 0.45 < result.flops <= 0.6
    assert result.network.proof
    assert result.curve[0].flops == 1
    assert len({point.widths["3.0.up"] - point.widths["3.2.up"] for point in result.curve}) == 1


@pytest.mark.parametrize("budget", [{"error": 0.3}, {"width": 0.5}, {"params": 0.7}])
def test_other_budgets_keep_them_equal_too(budget: dict[str, float]) -> None:
    result = interpress.compress(
        network(), DATA, same_widths=True, progress=False, method=QUICK, **budget
    )
    assert len({result.widths[f"3.{number}.up"] for number in range(3)}) == 1


def test_what_no_config_can_say_stays_whole() -> None:
    model = build("gpt2")
    result = interpress.compress(
        model, [inputs("gpt2", 40)], flops=0.8, same_widths=True, method=QUICK, progress=False
    )
    narrowed = {name for name, width in result.widths.items() if width < result.spaces[name].size}
    assert narrowed == {"transformer.h.0.mlp.c_fc", "transformer.h.1.mlp.c_fc"}
    assert result.model.config.n_inner == result.widths["transformer.h.0.mlp.c_fc"]
    assert model.config.n_inner is None


def test_same_widths_is_true_or_false() -> None:
    with pytest.raises(ArgumentError, match=r"same_widths=1; give True or False"):
        interpress.compress(network(), DATA, flops=0.5, same_widths=1)  # type: ignore[arg-type]

"""Statistics measured block by block give the same network as statistics measured at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.zoo import residual
from torch import nn

import interpress
from interpress import ArgumentError, Method
from interpress.allocation.effects import measure_effects
from interpress.calibration import streamed
from interpress.calibration.streamed import BlockWalk
from interpress.pipeline import steps
from interpress.progress import display
from interpress.selection.orders import order_all

TEXTS = torch.randint(0, 64, (60, 9), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(80, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def llama() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False, initializer_range=0.2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return residual.ResNet(residual.BasicBlock, (2, 2)).eval()


def chain() -> nn.Module:
    torch.manual_seed(0)
    layers = [part for _ in range(5) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()  # fmt: skip


CASES: dict[str, tuple[Callable[[], nn.Module], Any, Method]] = {
    "llama": (llama, TEXTS, Method()),
    "llama, padded": (llama, {"input_ids": TEXTS, "attention_mask": TEXTS > 5}, Method()),
    "resnet": (resnet, IMAGES, Method()),
    "chain": (chain, IMAGES, Method()),
    "chain, few examples": (chain, IMAGES[:6], Method()),
    "constant-id": (chain, IMAGES, Method.named("constant-id")),
}


@pytest.mark.filterwarnings(
    "ignore::interpress.RuinedWarning", "ignore::interpress.FewExamplesWarning"
)
@pytest.mark.parametrize("case", CASES)
def test_the_network_is_that_of_statistics_measured_at_once(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, data, method = CASES[case]
    batches = [data] if isinstance(data, dict) else data
    expected = interpress.compress(build(), batches, flops=0.6, method=method, progress=False)
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    result = interpress.compress(build(), batches, flops=0.6, method=method, progress=False)
    assert result.study.statistics.by_block
    assert result.widths == expected.widths
    assert result.network.proof
    for (name, one), (_, other) in zip(
        result.model.named_parameters(), expected.model.named_parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, msg=name)
    for row, other_row in zip(result.plan, expected.plan, strict=True):
        assert row.kept == other_row.kept
        assert row.error == pytest.approx(other_row.error, rel=1e-4, abs=1e-9)


def test_one_block_is_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordering channels walks over the data once; so does every interpolation of all taps."""
    passes, held = [0], set()
    begin, measure = BlockWalk._begin, BlockWalk._measure

    def counted(walk: BlockWalk) -> Any:
        passes[0] += 1
        return begin(walk)

    def watched(walk: BlockWalk, number: int) -> Any:
        assert walk._measured is None  # the block before is released
        held.add(number)
        return measure(walk, number)

    monkeypatch.setattr(BlockWalk, "_begin", counted)
    monkeypatch.setattr(BlockWalk, "_measure", watched)
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    study = interpress.analyze(llama(), TEXTS, progress=False).study
    assert passes == [0]
    with display(False) as bars:
        orders = order_all(study, "patches", bars)
        assert passes == [1]
        assert held == set(range(6))  # an attention and an MLP in each of three layers
        measure_effects(study, orders, bars)
        assert passes == [2]
    study.interpolations({name: order.kept(1) for name, order in orders.items()})
    assert passes == [3]


def test_an_analysis_by_block_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    analysis = interpress.analyze(chain(), IMAGES, progress=False)
    with pytest.raises(ArgumentError, match=r"take 0.0 GiB.*measured block by block.*save the res"):
        analysis.save(tmp_path / "analysis.safetensors")
    assert not list(tmp_path.iterdir())


def test_the_size_of_the_statistics_decides() -> None:
    analysis = interpress.analyze(chain(), IMAGES, progress=False)
    assert not analysis.study.statistics.by_block
    taps = {tap for space in analysis.spaces.shrinkable for tap in space.taps}
    assert streamed.bytes_at_once(analysis.spaces) == len(taps) * 4 * 8 * 8**2

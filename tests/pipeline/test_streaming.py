"""Statistics measured block by block give the same network as statistics measured at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.zoo import residual
from torch import Tensor, nn

import interpress
from interpress import ArgumentError, Method, SurgeryError
from interpress.calibration.room import bytes_at_once
from interpress.calibration.streamed import BlockWalk
from interpress.network import build_by_block, tap_errors
from interpress.network.proof_by_block import ProofByBlock
from interpress.pipeline import steps
from interpress.surgery.weights import overwrite

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


def test_three_walks_over_the_data_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that measures, one that compares allocations, and one that builds the network."""
    passes, held = [0], list[int]()
    begin, measure = BlockWalk._begin, BlockWalk._measure

    def counted(walk: BlockWalk) -> Any:
        passes[0] += 1
        return begin(walk)

    def watched(walk: BlockWalk, number: int) -> Any:
        assert walk._measured is None  # the block before is released
        held.append(number)
        return measure(walk, number)

    monkeypatch.setattr(BlockWalk, "_begin", counted)
    monkeypatch.setattr(BlockWalk, "_measure", watched)
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    images = torch.randn(200, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    result = interpress.compress(resnet(), images, flops=0.6, progress=False)
    assert result.network.refit_kept
    assert all(row.error >= 0 for row in result.plan)
    assert passes == [3]
    assert held == [0, 1] * 3


def test_a_refit_that_does_not_help_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is then built once more, without the refit."""
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    plain = interpress.compress(
        chain(), IMAGES, flops=0.6, method=Method(refit=False), progress=False
    )
    monkeypatch.setattr(build_by_block, "held_out_loss", lambda agreement: 0.0)  # never lower
    result = interpress.compress(chain(), IMAGES, flops=0.6, progress=False)
    assert not result.network.refit_kept
    assert result.network.refit is not None
    assert result.network.refit.errors
    for one, other in zip(result.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_wrong_weight_is_noticed_in_the_block_where_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "_AT_ONCE", 0)

    def wrong(model: nn.Module, weights: dict[str, Tensor]) -> None:
        for weight in weights.values():
            weight.mul_(1.01)  # of what is written, and of what the proof compares
        overwrite(model, weights)

    monkeypatch.setattr(build_by_block, "overwrite", wrong)
    with pytest.raises(SurgeryError, match="differs from the projected one"):
        interpress.compress(chain(), IMAGES, flops=0.6, progress=False)


def test_code_that_does_not_run_the_program_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    finish = ProofByBlock.finish

    def changed(proof: ProofByBlock, smaller: nn.Module) -> Any:
        smaller.register_forward_hook(lambda module, inputs, output: output * 2)
        return finish(proof, smaller)

    monkeypatch.setattr(ProofByBlock, "finish", changed)
    with pytest.raises(SurgeryError, match="differs from the projected one"):
        interpress.compress(chain(), IMAGES, flops=0.6, progress=False)


def test_wide_taps_get_an_estimated_error_and_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_AT_ONCE", 0)
    exact = interpress.compress(resnet(), IMAGES, flops=0.6, progress=False)
    monkeypatch.setattr(tap_errors, "_WIDE", 4)
    result = interpress.compress(resnet(), IMAGES, flops=0.6, progress=False)
    for row, other in zip(result.plan, exact.plan, strict=True):
        if row.after < row.before:
            assert row.bound is None
            assert row.ratio is None
            assert row.error == pytest.approx(other.error, rel=0.1, abs=1e-4)
    assert "None" not in result.summary()
    assert "None" not in result._repr_html_()


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
    assert bytes_at_once(analysis.spaces) == len(taps) * 4 * 8 * 8**2

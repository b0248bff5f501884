"""Distillation from end to end: it helps, is safe, resumable, and works for every kind of model."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.blobs import Blobs, blobs, train_blobs
from torch import Tensor, nn

import interpress
from interpress import ArgumentError
from interpress.distillation.pair import Pair
from interpress.distillation.training import Training
from interpress.graph.example import Example


@pytest.fixture(scope="module")
def points() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return blobs(torch.randint(4, (400,), generator=generator), generator)


@pytest.fixture(scope="module")
def compressed(points: Tensor) -> interpress.Result:
    return interpress.compress(train_blobs(), points, flops=0.15)


def distance(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        a, b = one(x), other(x)
    return float(((a - b) - (a - b).mean(1, keepdim=True)).square().mean())


def test_outputs_come_closer_on_new_data(compressed: interpress.Result) -> None:
    generator = torch.Generator().manual_seed(2)
    fresh = blobs(torch.randint(4, (1000,), generator=generator), generator)
    distilled = compressed.distill(steps=300)
    before = distance(compressed.original, compressed.model, fresh)
    assert distance(compressed.original, distilled.model, fresh) < 0.8 * before
    assert distilled.network.distillation is not None
    assert distilled.network.distillation.kept
    assert "Distilled" in distilled.summary()
    assert distilled.widths == compressed.widths


def test_nothing_that_exists_is_changed(compressed: interpress.Result) -> None:
    states = [copy.deepcopy(m.state_dict()) for m in (compressed.original, compressed.model)]
    random_state = torch.random.get_rng_state()
    compressed.distill(steps=20)
    assert torch.equal(torch.random.get_rng_state(), random_state)
    for model, state in zip((compressed.original, compressed.model), states, strict=True):
        assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())
        assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in compressed.model.parameters())


def test_a_network_that_cannot_improve_stays_as_it_is(points: Tensor) -> None:
    model = train_blobs()
    same = copy.deepcopy(model)
    distilled = interpress.distill(model, same, points, steps=30)
    assert not distilled.distillation.kept
    assert distilled.model is same
    assert distilled.agreement is not None
    assert distilled.agreement.agreement == 1.0
    assert "changed nothing" in str(distilled)


def test_steps_that_ruin_the_network_are_taken_back(
    compressed: interpress.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interpress.distillation.steps._RELATIVE_STEP", 30.0)
    distilled = compressed.distill(steps=200)
    assert distilled.agreement is not None
    assert compressed.agreement is not None
    assert distilled.agreement.agreement >= compressed.agreement.agreement
    before = compressed.network.agreement
    assert before is not None
    if not distilled.network.distillation.kept:  # type: ignore[union-attr]
        assert distilled.model is compressed.model


def test_an_interrupt_keeps_the_best_so_far(
    compressed: interpress.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks = Training._look, []

    def interrupted(self: Training) -> None:
        look(self)
        looks.append(1)
        if len(looks) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(Training, "_look", interrupted)
    record = compressed.distill(steps=300).network.distillation
    assert record is not None
    assert record.kept
    assert record.reason == "interrupted"
    assert 0 < record.steps < 300


def test_a_run_that_was_ended_goes_on(
    compressed: interpress.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compressed.distill(steps=60)
    save, saves = Training._save, []

    def killed(self: Training, checkpoint: Any) -> None:
        save(self, checkpoint)
        saves.append(1)
        if len(saves) == 5:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_save", killed)
        with pytest.raises(RuntimeError, match="killed"):
            compressed.distill(steps=60, checkpoint=tmp_path / "state")
    again = compressed.distill(steps=60, checkpoint=tmp_path / "state")
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_of_other_options_is_refused(
    compressed: interpress.Result, tmp_path: Path
) -> None:
    compressed.distill(steps=5, checkpoint=tmp_path / "state")
    with pytest.raises(interpress.StorageError, match="set of options"):
        compressed.distill(steps=6, checkpoint=tmp_path / "state")


def test_too_few_examples_are_said(points: Tensor, compressed: interpress.Result) -> None:
    distilled = compressed.distill(points[:12], steps=5)
    record = distilled.network.distillation
    assert record is not None
    assert not record.kept
    assert "held out" in record.reason
    assert distilled.model is compressed.model
    assert distilled.agreement is compressed.agreement


def test_a_memory_bound_changes_nothing_but_rounding(points: Tensor) -> None:
    result = interpress.compress(train_blobs(), points, flops=0.3)
    records = [result.distill(steps=40, memory=m).network.distillation for m in (None, 3e-6)]
    assert records[0] is not None
    assert records[1] is not None
    assert records[0].before == pytest.approx(records[1].before, rel=1e-4)
    assert records[0].after == pytest.approx(records[1].after, rel=0.02)


def test_compress_distills(points: Tensor) -> None:
    result = interpress.compress(train_blobs(), points, flops=0.15, distill=0.02)
    assert result.network.distillation is not None
    assert result.network.distillation.steps > 0
    with pytest.raises(ArgumentError, match="distill="):
        interpress.compress(train_blobs(), points, flops=0.15, distill=-1.0)


def test_a_saved_result_is_distilled(compressed: interpress.Result, tmp_path: Path) -> None:
    distilled = compressed.distill(steps=100)
    distilled.save(tmp_path / "smaller")
    loaded = interpress.load(tmp_path / "smaller", Blobs())
    for one, other in zip(loaded.parameters(), distilled.model.parameters(), strict=True):
        assert torch.equal(one, other)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.classes, self.place = nn.Linear(64, 5), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x)
        return {"classes": self.classes(h), "place": self.place(h)}


class Tagger(nn.Module):
    """One decision per token, with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.mlp = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 6))

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        return self.mlp(self.embed(tokens))


def padded(count: int) -> list[dict[str, Tensor]]:
    tokens = torch.randint(500, (count, 12))
    lengths = torch.randint(4, 13, (count, 1))
    mask = (torch.arange(12) < lengths).long()
    parts = zip(tokens.split(10), mask.split(10), strict=True)
    return [{"tokens": t, "attention_mask": m} for t, m in parts]


@pytest.mark.parametrize(
    ("network", "data", "arguments"),
    [
        (TwoHeads, lambda: torch.randn(200, 8), {}),
        (
            lambda: nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)),
            lambda: torch.randn(200, 8),
            {},
        ),
        (Tagger, lambda: padded(200), {}),
    ],
    ids=["two heads", "regression", "padded tokens"],
)
def test_every_kind_of_model(network: Any, data: Any, arguments: dict[str, Any]) -> None:
    torch.manual_seed(3)
    model, examples, fresh = network(), data(), data()
    result = interpress.compress(model, examples, flops=0.3, **arguments)
    distilled = result.distill(steps=200)
    before = interpress.agreement(model, result.model, fresh)
    after = interpress.agreement(model, distilled.model, fresh)
    if before.output_error is not None:
        assert after.output_error is not None
        assert after.output_error < before.output_error
    else:
        assert after.divergence is not None
        assert before.divergence is not None
        assert after.divergence < before.divergence


def test_a_language_model_comes_closer() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 4.0  # so that the predictions are not uniform
    tokens = torch.randint(64, (60, 16))
    result = interpress.compress(model, tokens, flops=0.7)
    distilled = result.distill(steps=60)
    fresh = torch.randint(64, (60, 16))
    before = interpress.agreement(model, result.model, fresh).divergence
    after = interpress.agreement(model, distilled.model, fresh).divergence
    assert before is not None
    assert after is not None
    assert after < before


def test_no_activations_of_the_training_stay_in_memory(
    compressed: interpress.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would also break the recording of CUDA graphs."""
    kept: list[torch.Size] = []
    original = Pair.add_gradients

    def watched(self: Pair, example: Example) -> None:
        tensors = (thing for thing in gc.get_objects() if type(thing) is Tensor)
        kept.extend(tensor.shape for tensor in tensors if tensor.grad_fn is not None)
        original(self, example)

    monkeypatch.setattr(Pair, "add_gradients", watched)
    gc.collect()
    gc.disable()  # it would hide a cycle
    try:
        compressed.distill(steps=2)
    finally:
        gc.enable()
    assert not kept

"""The measurement of what else was tried: variants, their loss, and their result files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.experiment import ExperimentError
from benchmarks.preserve import ahead, command, features, tables, variants
from torch import Tensor, fx, nn

import interpress
from interpress import Method, demo
from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import Pair
from interpress.graph.example import Example
from interpress.graph.executor import Executor

DIGITS = ["tried", "--networks", "digits", "--seeds", "1"]


def run(out: Path, *more: str) -> list[dict[str, Any]]:
    words = [*DIGITS, "--flops", "0.2", "--steps", "12", "--out", str(out), *more]
    command.main(words)
    report = json.loads((out / "preserve-tried-cpu.json").read_text())
    text = (out / "preserve-tried-cpu.md").read_text()
    assert text == tables.markdown("tried", report)
    return report["rows"]


def test_all_variants_are_measured_on_the_digits(tmp_path: Path) -> None:
    rows = run(tmp_path)
    assert [row["variant"] for row in rows] == list(variants.VARIANTS)
    assert not [row for row in rows if "failed" in row]
    for row in rows:
        assert 0.18 < row["flops"] <= 0.2
        assert 50 < row["before"] <= 100
        assert row["gain"][0] == pytest.approx(row["agreement"] - rows[0]["agreement"])
    assert max(row["steps"] for row in rows if row["variant"] != "re-allocated") <= 12
    text = (tmp_path / "preserve-tried-cpu.md").read_text()
    assert all(title in text for title in tables.TITLES.values())


def test_a_variant_that_fails_does_not_lose_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(start: variants.Start) -> variants.Outcome:
        raise RuntimeError("no memory left\nfor this")

    monkeypatch.setitem(variants.VARIANTS, "looks-ahead", fails)
    rows = run(tmp_path, "--variants", "released", "looks-ahead", "several-splits")
    assert [row.get("failed") for row in rows] == [None, "RuntimeError: no memory left", None]
    assert (
        "| looks ahead (predictions) | 0.2 | 0 | failed |"
        in (tmp_path / "preserve-tried-cpu.md").read_text()
    )


def test_result_files_of_parts_are_merged(tmp_path: Path) -> None:
    parts = []
    for seed in ("0", "1"):
        words = [*DIGITS, "--flops", "0.3", "--steps", "2", "--first-seed", seed]
        command.main([*words, "--variants", "released", "--suffix", seed, "--out", str(tmp_path)])
        parts.append(tmp_path / f"preserve-tried-cpu{seed}.json")
    merge = ["tried", "--out", str(tmp_path), "--merge", *map(str, parts)]
    command.main(merge)
    merged = json.loads((tmp_path / "preserve-tried-cpu.json").read_text())
    assert [row["seed"] for row in merged["rows"]] == [0, 1]
    parts[1].write_text(parts[1].read_text().replace(merged["code"], "other"))
    with pytest.raises(ExperimentError, match="differ in 'code'"):
        command.main(merge)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tried", "--networks", "vgg16"], "--data is missing"),
        (["tried", "--networks", "vgg16", "--data", "."], "--weights is missing"),
        (["agreement", "--networks", "digits"], "takes networks of CIFAR-10 only"),
    ],
)
def test_missing_options_are_named(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(words)
    assert message in capsys.readouterr().err


def test_features_are_compared_at_kept_channels() -> None:
    """Without a refit, the first layer computes the kept channels of the original."""
    model, digits = demo.network(), demo.load_digits()
    analysis = interpress.analyze(model, digits.calibration)
    result = analysis.compress(flops=0.3, method=Method(refit=False))
    every = features.Features.of(result)
    assert list(every.kept) == ["features.0", "features.3", "features.7"]
    assert [len(kept) for _, kept in every.kept.values()] == list(result.widths.values())
    images = Example.of(digits.test[0][:40])
    first = features.Features({"features.0": every.kept["features.0"]})
    assert _losses(first, result, images).abs().max() < 1e-10
    assert _losses(every, result, images).min() > 1e-3


def test_layers_that_train_apart_learn_from_their_own_feature_only() -> None:
    model, digits = demo.network(), demo.load_digits()
    result = interpress.compress(model, digits.calibration, flops=0.3)
    kept = features.Features.of(result).kept
    last = features.Features({name: kept[name] for name in ("features.3", "features.7")})
    images = Example.of(digits.test[0][:40])
    for apart in (False, True):
        student = copy.deepcopy(result.model)
        pair = _pair(result, images, student)
        with last.compared(pair, only=True, apart=apart) as changed:
            changed.add_gradients(images)
        assert student.classifier.weight.grad is None
        first = features.Features({"features.3": kept["features.3"]})
        gradient = 2 * student.features[3].weight.grad  # the loss is the mean of two features
        student.zero_grad()
        with first.compared(pair, only=True) as changed:
            changed.add_gradients(images)
        alone = student.features[3].weight.grad
        assert torch.allclose(gradient, alone, rtol=1e-4) == apart


def _pair(result: interpress.Result, images: Example, student: nn.Module) -> Pair:
    meaning, original = result.study.meaning, result.study.original
    loss = OutputLoss(meaning, [[original(images.args[0]).detach()]])
    return Pair(original, student, meaning, loss, 40)


def _losses(wanted: features.Features, result: interpress.Result, images: Example) -> Tensor:
    pair = _pair(result, images, result.model)
    with wanted.compared(pair, only=True) as changed:
        losses = changed.losses(images, changed.wanted(images))
    assert losses.shape == (40,)
    assert not result.model.get_submodule("features.0")._forward_hooks
    return losses


def test_a_sensitivity_predicts_the_divergence_of_a_small_error() -> None:
    """The error is one of a convolution's output, after its batch norm."""
    model, images = demo.network(), demo.load_digits().calibration
    with ahead.looking_ahead(scores=False):
        study = interpress.analyze(model, images).study
    assert not interpress.analyze(model, images).study.statistics.sensitivities
    executor = Executor(study.spaces.program)
    _, norm, _ = (n for n in study.spaces.program.operators() if "batch_norm" in str(n.target))
    (reader,), (end,) = norm.users, study.spaces.program.output_nodes()
    recorded = executor.record(*study.few_examples(240))
    output = recorded[norm]
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    error = 0.02 * output.abs() * noise

    def with_error(node: fx.Node, args: Any, kwargs: Any) -> Any:
        return ((output + error,), kwargs) if node is reader else (args, kwargs)

    changed = executor.rerun(recorded, [reader], with_error)
    first, second = (frame[end].log_softmax(-1) for frame in (recorded, changed))
    measured = float((first.exp() * (first - second)).sum(-1).mean())
    (metric,) = (
        one.metric().float()
        for name, one in study.statistics.sensitivities.items()
        if name.startswith("features.3")
    )
    rows = error.movedim(1, -1).reshape(-1, output.shape[1])
    assert measured / 2 < float((rows @ metric * rows).sum(1).mean()) < 2 * measured

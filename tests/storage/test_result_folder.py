"""Results and analyses as files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tests.compress.conftest import DigitNet, Trained
from tests.zoo.members import build
from torch import nn

import interpress
from interpress import Analysis, ArgumentError, Result, StorageError, load
from interpress.storage.result_folder import PLAN, WEIGHTS


@pytest.fixture(scope="session")
def result(analysis: Analysis) -> Result:
    return analysis.compress(flops=0.5)


@pytest.fixture
def saved(result: Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "small")
    return tmp_path / "small"


def test_saved_and_loaded_is_the_same_network(result: Result, saved: Path, digits: Trained) -> None:
    assert sorted(os.listdir(saved)) == [PLAN, WEIGHTS]
    fresh = DigitNet().eval()
    before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    smaller = load(saved, fresh)
    assert torch.equal(smaller(digits.test), result.model(digits.test))
    assert smaller.inner[0].out_channels == result.model.inner[0].out_channels
    assert str(smaller) == str(result.model)
    assert all(torch.equal(fresh.state_dict()[name], tensor) for name, tensor in before.items())
    plan = json.loads((saved / PLAN).read_text())
    assert plan["asked"] == {"budget": "flops", "value": 0.5}
    assert {row["name"]: row["after"] for row in plan["plan"]} == dict(result.widths)
    assert plan["agreement"]["agreement"] == result.agreement.agreement  # type: ignore[union-attr]
    smaller.train()(digits.test).sum().backward()


@pytest.mark.parametrize("name", ["vit", "gpt2", "shufflenet_v2", "shared_weights", "densenet"])
@pytest.mark.filterwarnings("ignore")
def test_every_architecture_comes_back(name: str, tmp_path: Path) -> None:
    model, example = build(name)
    batch = interpress.graph.program.Example.of(example).map(lambda t: torch.cat([t] * 12))
    small = interpress.compress(model, batch, flops=0.8, refit=False).model
    found = interpress.compress(model, batch, flops=0.8, refit=False)
    found.save(tmp_path / "out")
    torch.manual_seed(1)
    other, _ = build(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    loaded = load(tmp_path / "out", other)
    for a, b in zip(small.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert a[0] == b[0]
        assert torch.equal(a[1], b[1])
    expected = interpress.verify.outputs(small, batch)
    assert all(
        torch.equal(a, b)
        for a, b in zip(expected, interpress.verify.outputs(loaded, batch), strict=True)
    )


def test_a_folder_is_not_overwritten_by_accident(result: Result, saved: Path) -> None:
    with pytest.raises(StorageError, match="exists and is not empty; pass overwrite=True"):
        result.save(saved)
    result.save(saved, overwrite=True)
    assert sorted(os.listdir(saved)) == [PLAN, WEIGHTS]
    (saved / "note.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"also holds 'note\.txt'"):
        result.save(saved, overwrite=True)
    assert (saved / "note.txt").read_text() == "mine"
    with pytest.raises(StorageError, match="is a file"):
        result.save(saved / "note.txt")
    link = saved.parent / "link"
    link.symlink_to(saved.parent / "real", target_is_directory=True)
    (saved.parent / "real").mkdir()
    result.save(link)
    assert link.is_symlink()
    assert sorted(os.listdir(saved.parent / "real")) == [PLAN, WEIGHTS]
    shutil.rmtree(saved.parent / "real")
    link.unlink()
    assert sorted(os.listdir(saved.parent)) == ["small"]


def test_a_failed_save_leaves_what_was_there(
    result: Result, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (saved / WEIGHTS).read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("interpress.storage.save", full)
    with pytest.raises(StorageError, match="No space left"):
        result.save(saved, overwrite=True)
    assert (saved / WEIGHTS).read_bytes() == before
    assert sorted(os.listdir(saved.parent)) == ["small"]


def test_damage_is_noticed(saved: Path, tmp_path: Path) -> None:
    def damaged(name: str, change) -> Path:  # type: ignore[no-untyped-def]
        target = tmp_path / f"damaged-{len(os.listdir(tmp_path))}"
        shutil.copytree(saved, target)
        change(target / name)
        return target

    def edited(old: str, new: str):  # type: ignore[no-untyped-def]
        return lambda path: path.write_text(path.read_text().replace(old, new, 1))

    cases = [
        (WEIGHTS, lambda p: p.write_bytes(p.read_bytes()[:-50]), "cut short"),
        (WEIGHTS, lambda p: p.write_bytes(p.read_bytes()[:-4] + b"\1\2\3\4"), "was changed"),
        (WEIGHTS, lambda p: p.unlink(), r"lacks weights\.safetensors"),
        (PLAN, lambda p: p.unlink(), r"lacks plan\.json"),
        (PLAN, lambda p: p.write_text(p.read_text()[:200]), "cut short"),
        (PLAN, edited('"seed": 0', '"seed": 1'), "was changed"),
        (PLAN, edited('"version": 1', '"version": 99'), "upgrade interpress"),
        (PLAN, edited("compressed-network", "recipe"), "holds 'recipe'"),
    ]
    for name, change, message in cases:
        with pytest.raises(StorageError, match=message):
            load(damaged(name, change), DigitNet())
    with pytest.raises(StorageError, match="not a folder"):
        load(tmp_path / "nowhere", DigitNet())


def test_another_architecture_is_refused(saved: Path, result: Result) -> None:
    with pytest.raises(StorageError, match=r"'stem.0.weight' is \[16.*made from \[24"):
        load(saved, DigitNet(width=16))
    with pytest.raises(StorageError, match=r"has no tensor 'stem\.0\.weight'"):
        load(saved, nn.Linear(3, 3))
    with pytest.raises(StorageError, match="original architecture, as it was before"):
        load(saved, result.model)


def test_an_analysis_answers_again_after_loading(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    analysis.compress(flops=0.6)  # so that effects are measured
    analysis.save(path)
    images = digits.calibration.numpy().tobytes()
    assert images[1000:1400] not in path.read_bytes()
    with_data = Analysis.load(path, digits.model, digits.calibration)
    expected, found = (a.compress(flops=0.4) for a in (analysis, with_data))
    assert expected.widths == found.widths
    assert torch.equal(expected.model(digits.test), found.model(digits.test))
    alone = Analysis.load(path, digits.model)
    plain = alone.compress(flops=0.4, refit=False)
    assert plain.widths == expected.widths
    assert plain.agreement is None
    assert "FLOPs" in plain.summary()
    assert len(alone.curve()) > 10
    with pytest.raises(ArgumentError, match="loaded without calibration data"):
        alone.compress(flops=0.4)


def test_an_analysis_of_another_model_is_refused(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    analysis.save(path)
    with pytest.raises(StorageError, match="other weights"):
        Analysis.load(path, DigitNet())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match="cut short"):
        Analysis.load(path, digits.model)

"""Results as folders."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.digits import DigitNet, Trained
from tests.zoo.members import build
from torch import nn

import interpress
from interpress import Analysis, Method, Result, StorageError, load
from interpress.files import tensor_file as files
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.storage.result_folder import PAGE, PLAN, WEIGHTS
from interpress.storage.sizes import changed_sizes


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
    smaller.train()(digits.test).sum().backward()


def test_the_plan_says_what_was_asked_and_what_came_out(result: Result, saved: Path) -> None:
    plan = json.loads((saved / PLAN).read_text())
    assert plan["asked"] == {"budget": "flops", "value": 0.5, "kind": "auto", "output": None}
    assert plan["method"] == {"name": "preserve", **dataclasses.asdict(Method())}
    assert {row["name"]: row["after"] for row in plan["plan"]} == dict(result.widths)
    assert result.agreement is not None
    assert plan["agreement"]["agreement"] == result.agreement.agreement
    assert plan["flops"] == [result.before.flops, result.after.flops]
    assert plan["seed"] == 0
    assert plan["refit_kept"] == result.network.refit_kept


@pytest.mark.parametrize("name", ["vit", "gpt2", "shufflenet_v2", "shared_weights", "densenet"])
@pytest.mark.filterwarnings("ignore")
def test_every_architecture_comes_back(name: str, tmp_path: Path) -> None:
    model, example = build(name)
    batch = Example.of(example).map(lambda t: torch.cat([t] * 12))
    result = interpress.compress(model, batch, flops=0.8, method=Method(refit=False))
    small = result.model
    result.save(tmp_path / "out")
    torch.manual_seed(1)
    other, _ = build(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    loaded = load(tmp_path / "out", other)
    for a, b in zip(small.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert a[0] == b[0]
        assert torch.equal(a[1], b[1])
    pairs = zip(output_tensors(small, batch), output_tensors(loaded, batch), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_model_on_the_meta_device_gets_the_saved_tensors(
    result: Result, saved: Path, digits: Trained
) -> None:
    with torch.device("meta"):
        empty = DigitNet().eval()
    assert torch.equal(load(saved, empty)(digits.test), result.model(digits.test))


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
    with pytest.raises(StorageError, match=r"is a file, so .* cannot be created"):
        result.save(saved / "note.txt" / "below")


def test_a_link_is_written_through(result: Result, tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real", target_is_directory=True)
    result.save(link)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path / "real")) == [PLAN, WEIGHTS]


def test_a_report_is_a_third_file(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "out", report=True)
    assert sorted(os.listdir(tmp_path / "out")) == sorted([PLAN, WEIGHTS, PAGE])
    result.save(tmp_path / "out", overwrite=True)
    assert sorted(os.listdir(tmp_path / "out")) == [PLAN, WEIGHTS]


def test_a_failed_save_leaves_what_was_there(
    result: Result, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (saved / WEIGHTS).read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "save", full)
    with pytest.raises(StorageError, match="No space left"):
        result.save(saved, overwrite=True)
    assert (saved / WEIGHTS).read_bytes() == before
    assert sorted(os.listdir(saved.parent)) == ["small"]


def edited(old: str, new: str) -> Callable[[Path], object]:
    def edit(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    (WEIGHTS, lambda p: p.write_bytes(p.read_bytes()[:-50]), "may be truncated"),
    (WEIGHTS, lambda p: p.write_bytes(p.read_bytes()[:-4] + b"\1\2\3\4"), "was changed"),
    (WEIGHTS, lambda p: p.unlink(), r"lacks weights\.safetensors"),
    (PLAN, lambda p: p.unlink(), r"lacks plan\.json"),
    (PLAN, lambda p: p.write_text(p.read_text()[:200]), "may be truncated"),
    (PLAN, edited('"seed": 0', '"seed": 1'), "was changed"),
    (PLAN, edited('"version": 1', '"version": 99'), "upgrade interpress"),
    (PLAN, edited("compressed-network", "recipe"), "holds 'recipe'"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_damage_is_noticed(
    saved: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(saved / name)
    with pytest.raises(StorageError, match=message):
        load(saved, DigitNet())


def test_a_missing_folder_and_a_mixture_of_two_are_refused(
    saved: Path, tmp_path: Path, result: Result
) -> None:
    with pytest.raises(StorageError, match="not a folder"):
        load(tmp_path / "nowhere", DigitNet())
    shutil.copytree(saved, tmp_path / "other")
    edited('"seed": 0', '"seed": 1')(tmp_path / "other" / PLAN)
    shutil.copy(tmp_path / "other" / PLAN, saved / PLAN)
    with pytest.raises(StorageError, match="belongs to other weights"):
        load(saved, DigitNet())


def test_another_architecture_is_refused(saved: Path, result: Result) -> None:
    with pytest.raises(StorageError, match=r"'stem.0.weight' is \[16.*made from \[24"):
        load(saved, DigitNet(width=16))
    with pytest.raises(StorageError, match=r"has no tensor 'stem\.0\.weight'"):
        load(saved, nn.Linear(3, 3))
    with pytest.raises(StorageError, match="give the original as it was before compression"):
        load(saved, result.model)


def test_changed_sizes_are_those_of_cut_layers(analysis: Analysis) -> None:
    result = analysis.compress(width=0.5, method=Method(refit=False))
    sizes = {(m, a): value for m, a, value in changed_sizes(result.original, result.model)}
    assert sizes["inner.0", "out_channels"] == result.widths["inner.0"]
    assert sizes["inner.1", "num_features"] == result.widths["inner.0"]
    assert sizes["out", "in_features"] == result.widths["hidden"]
    assert ("out", "out_features") not in sizes

"""Result files record their code, and never mix versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks import provenance

import interpress


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("linalg/one.py", "refit/two.py", "cli/three.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(provenance, "_SOURCES", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "linalg_changes", "baselines_change"),
    [("linalg/one.py", True, True), ("refit/two.py", False, True), ("cli/three.py", False, False)],
)
def test_the_hash_of_the_code_covers_what_a_result_measures(
    sources: Path, changed: str, linalg_changes: bool, baselines_change: bool
) -> None:
    before = [provenance.code_hash(name) for name in ("linalg-cpu", "baselines")]
    (sources / changed).write_text("x = 2\n")
    after = [provenance.code_hash(name) for name in ("linalg-cpu", "baselines")]
    assert [a != b for a, b in zip(before, after, strict=True)] == [
        linalg_changes, baselines_change,
    ]  # fmt: skip


def test_outside_of_a_checkout_there_is_no_commit(sources: Path) -> None:
    assert provenance.commit() is None
    assert provenance.stamp("linalg-cpu", torch.device("cpu"))["commit"] is None


def test_results_of_an_older_version_are_set_aside_with_tables_and_plots(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps({"about": {"runs": [{"interpress": "0.0.1"}]}, "rows": {}}))
    for other in ("toy.md", "toy.svg", "toy-more.svg", "toys.md"):
        (tmp_path / other).write_text(other)
    provenance.set_aside(path)
    moved = {file.name for file in (tmp_path / "older" / "0.0.1").iterdir()}
    assert moved == {"toy.json", "toy.md", "toy.svg", "toy-more.svg"}
    assert (tmp_path / "toys.md").is_file()


def test_results_of_this_version_stay(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps({"interpress": interpress.__version__}))
    provenance.set_aside(path)
    assert path.is_file()

"""A checkpoint keeps finished parts, and is refused for another run."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from interpress import StorageError
from interpress.files import tensor_file
from interpress.files.checkpoint import Checkpoint, digest

RUN = {"model": "a", "data": "b"}


def test_parts_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "checkpoint"
    kept = Checkpoint.open(folder, RUN)
    assert kept.is_kept
    assert kept.load("block 0") is None
    kept.save("block 0", {"x": torch.arange(3.0)}, {"done": 1})
    part = Checkpoint.open(folder, RUN).load("block 0")
    assert part is not None
    assert part.tensors["x"].tolist() == [0, 1, 2]
    assert part.record == {"done": 1}
    kept.save("block 0", {}, {"done": 2})  # replaced
    assert kept.load("block 0") == ({}, {"done": 2})
    assert kept.free_bytes() > 0


def test_without_a_folder_nothing_is_kept() -> None:
    nowhere = Checkpoint()
    nowhere.save("block 0", {"x": torch.ones(1)}, {})
    assert not nowhere.is_kept
    assert nowhere.load("block 0") is None


@pytest.mark.parametrize("name", RUN)
def test_a_folder_of_another_run_is_refused(name: str, tmp_path: Path) -> None:
    Checkpoint.open(tmp_path / "c", RUN)
    with pytest.raises(StorageError, match=f"run with another {name}; choose another folder"):
        Checkpoint.open(tmp_path / "c", {**RUN, name: "other"})


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StorageError, match=r"holds other files \(thesis\.tex\)"):
        Checkpoint.open(tmp_path, RUN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be a folder"):
        Checkpoint.open(tmp_path / "file", RUN)


def test_a_full_disk_leaves_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoint.open(tmp_path, RUN)
    kept.save("block 0", {"x": torch.ones(2)}, {})

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_file, "open", full, raising=False)
    with pytest.raises(StorageError, match=r"No space left.*holds what was finished.*make room"):
        kept.save("block 1", {"x": torch.ones(2)}, {})
    monkeypatch.undo()
    again = Checkpoint.open(tmp_path, RUN)
    assert again.load("block 0") is not None
    assert again.load("block 1") is None


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    kept = Checkpoint.open(tmp_path, RUN)
    kept.save("block 0", {"x": torch.ones(100)}, {})
    path = tmp_path / "block 0.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StorageError, match="truncated"):
        kept.load("block 0")


def test_digests_depend_on_content_and_not_on_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})

"""Single files: written beside their target, moved into place, checked when read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from interpress import StorageError
from interpress.files import tensor_file as files
from interpress.files.tensor_file import load_tensors, save_tensors, save_text

TENSORS = {
    "a": torch.arange(12.0).reshape(3, 4).T,  # not contiguous
    "b": torch.tensor([1, 2], dtype=torch.int32),
    "c": torch.randn(5, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "x.safetensors"
    save_tensors(path, "thing", TENSORS, {"note": "hello"})
    return path


def test_tensors_and_fields_come_back(saved: Path) -> None:
    tensors, fields = load_tensors(saved, "thing")
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert fields == {"note": "hello"}
    assert os.listdir(saved.parent) == [saved.name]  # no temporary file is left


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), "may be truncated: save it again"),
    (flipped, "was changed after it was written"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b"hello", b"jello")), "was changed"),
    (lambda path: path.write_text("text"), "not a readable safetensors file"),
    (lambda path: path.unlink(), "is not a file; give the path"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damage_is_noticed(saved: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(saved)
    with pytest.raises(StorageError, match=message):
        load_tensors(saved, "thing")


def test_another_kind_of_file_is_refused(saved: Path) -> None:
    with pytest.raises(StorageError, match="holds 'thing', not 'analysis'; give the file of a"):
        load_tensors(saved, "analysis")


def test_a_newer_format_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT_VERSION", 7)
    save_tensors(saved, "thing", TENSORS, {})
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"format version 7.*reads up to 1; upgrade interpress"):
        load_tensors(saved, "thing")


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(StorageError, match="No space left on device; nothing was changed"):
        save_tensors(saved, "thing", {}, {})
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_text_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    save_text(path, "first")
    with pytest.raises(StorageError, match="exists; pass overwrite=True to replace it"):
        save_text(path, "second")
    assert path.read_text() == "first"
    path.chmod(0o600)
    save_text(path, "second", overwrite=True)
    assert path.read_text() == "second"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match=r"cannot write .*Choose a folder that exists"):
        save_text(tmp_path / "nowhere" / "page.html", "text")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"

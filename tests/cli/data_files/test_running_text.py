"""`--text`: running text in examples of equal length."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from interpress.cli.data_files import running_text
from interpress.cli.data_files.registry import open_data_file
from interpress.cli.data_options import DataOptions
from interpress.errors import ArgumentError, DataError, StorageError


class Letters:
    """A tokenizer with one token per character."""

    model_max_length = 8
    name_or_path = "somewhere/letters"

    def get_vocab(self) -> dict[str, int]:
        return {"b": 98, "a": 97}

    def __call__(self, text: str, verbose: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(running_text, "load_tokenizer", lambda path, folder: Letters())
    path = tmp_path / "book.md"  # any suffix
    path.write_text("".join(chr(97 + i % 26) for i in range(30)), encoding="utf-8")
    return path


def test_consecutive_examples_of_the_asked_length(text: Path) -> None:
    file = open_data_file(DataOptions(text, text=text, length=7))
    assert file.count == 4  # the last two letters do not fill an example
    expected = torch.tensor([97 + i % 26 for i in range(28)]).reshape(4, 7)
    assert torch.equal(file.inputs([0, 3])["input_ids"], expected[[0, 3]])


def test_the_tokenizer_and_the_length_are_recorded(text: Path) -> None:
    record = open_data_file(DataOptions(text, text=text, length=7)).preprocessing()
    digest = hashlib.sha256(b'{"a": 97, "b": 98}').hexdigest()[:16]
    assert record == {"inputs": "text", "tokenizer": "letters", "vocabulary": digest, "length": 7}


def test_the_tokenizer_bounds_the_usual_length(text: Path) -> None:
    assert open_data_file(DataOptions(text, text=text)).inputs([0])["input_ids"].shape == (1, 8)


def test_what_cannot_be_read(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no examples; give a longer text"):
        open_data_file(DataOptions(text, text=text, length=31))
    with pytest.raises(StorageError, match="is not a file"):
        open_data_file(DataOptions(tmp_path, text=tmp_path))
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="is not UTF-8"):
        open_data_file(DataOptions(tmp_path / "bad.txt", text=tmp_path / "bad.txt"))


def test_text_stands_in_for_data() -> None:
    arguments = {"path": None, "text": Path("book.txt")}
    DataOptions.fill_in(arguments)
    assert arguments["path"] == Path("book.txt")
    with pytest.raises(ArgumentError, match="both given"):
        DataOptions.fill_in({"path": Path("a"), "text": Path("b")})

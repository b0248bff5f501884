"""`.txt`: one example per line, for a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.registry import data_file
from interpress.cli.data_options import DataOptions
from interpress.errors import ArgumentError, DataError, StorageError

_LENGTH = 128  # tokens per line, unless the user says


@data_file("txt")
class TextFile(DataFile):
    """Lines of text; empty lines are skipped."""

    if_empty = "give one example per line"

    def __init__(self, options: DataOptions) -> None:
        try:
            text = options.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{options.path} is not UTF-8 text ({error}); convert it to UTF-8"
            ) from error
        self._lines = [line for line in text.splitlines() if line.strip()]
        self._length = options.length or _LENGTH
        self._tokenizer = load_tokenizer(options.path, options.tokenizer)

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def inputs(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return the tokens of some lines, each (batch, length)."""
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        tokens = self._tokenizer(
            [self._lines[index] for index in indices],
            padding="max_length", truncation=True, max_length=self._length, return_tensors="pt",
        )  # fmt: skip
        return dict(tokens)


def load_tokenizer(path: Path, folder: Path | None) -> Any:
    """Return the tokenizer in a folder, or of a model on this disk; `path` is the text for it."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ArgumentError("text needs transformers: pip install 'interpress[hf]'") from error
    is_function = folder is not None and ":" in str(folder) and not folder.is_dir()
    if folder is None or is_function:
        raise ArgumentError(f"{path} is text; give the folder of a tokenizer with --tokenizer")
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise StorageError(
            f"{folder} does not hold a tokenizer ({reason}); give another with --tokenizer"
        ) from error

"""`.txt`: one example per line, for a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.registry import data_file
from interpress.cli.data_files.text import (
    IF_MISFIT,
    load_tokenizer,
    read_text,
    text_record,
    warn_if_unknown,
)
from interpress.cli.data_options import DataOptions

_LENGTH = 128  # tokens per line, unless the user says
_CHECKED = 64  # lines whose tokens are checked


@data_file("txt")
class TextFile(DataFile):
    """Lines of text; empty lines are skipped."""

    if_empty = "give one example per line"
    if_misfit = IF_MISFIT

    def __init__(self, options: DataOptions) -> None:
        text = read_text(options.path)
        self._lines = [line for line in text.splitlines() if line.strip()]
        self._length = options.length or _LENGTH
        self._tokenizer = load_tokenizer(options.path, options.tokenizer)
        if self._tokenizer.pad_token is None:  # what stands in padding is masked
            self._tokenizer.pad_token = self._tokenizer.eos_token or _any_token(self._tokenizer)
        if self._lines:
            checked = self.inputs(range(min(len(self._lines), _CHECKED)))
            warn_if_unknown(self._tokenizer, checked, options.path)

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def inputs(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return the tokens of some lines, each (batch, length)."""
        tokens = self._tokenizer(
            [self._lines[index] for index in indices],
            padding="max_length", truncation=True, max_length=self._length, return_tensors="pt",
        )  # fmt: skip
        return dict(tokens)

    def preprocessing(self) -> dict[str, Any]:
        """Return the tokenizer and the tokens per line."""
        return text_record(self._tokenizer, self._length)


def _any_token(tokenizer: Any) -> str:
    """Return some token of a tokenizer that has neither a padding token nor an end of text."""
    return str(tokenizer.convert_ids_to_tokens(0))

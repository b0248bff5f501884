"""Running text, cut into examples of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.text import (
    IF_MISFIT,
    load_tokenizer,
    read_text,
    text_record,
    warn_if_unknown,
)
from interpress.cli.data_options import DataOptions

USUAL_LENGTH = 512  # tokens per example, unless the user, the model or the tokenizer says fewer


class RunningText(DataFile):
    """Consecutive tokens of one text; the last few, which do not fill an example, are left out."""

    if_empty = "give a longer text, or a smaller --length"
    if_misfit = IF_MISFIT

    def __init__(self, options: DataOptions) -> None:
        text = read_text(options.path)
        self._tokenizer = tokenizer = load_tokenizer(options.path, options.tokenizer)
        longest = int(getattr(tokenizer, "model_max_length", None) or USUAL_LENGTH)
        length = options.length or min(USUAL_LENGTH, longest)
        tokens = torch.tensor(tokenizer(text, verbose=False)["input_ids"], dtype=torch.long)
        warn_if_unknown(tokenizer, {"input_ids": tokens}, options.path)
        self._length = length
        self._rows = tokens[: len(tokens) // length * length].reshape(-1, length)

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self._rows)

    def inputs(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return the tokens of some examples (batch, length)."""
        return {"input_ids": self._rows[list(indices)]}

    def preprocessing(self) -> dict[str, Any]:
        """Return the tokenizer and the tokens per example."""
        return text_record(self._tokenizer, self._length)

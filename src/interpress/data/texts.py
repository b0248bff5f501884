"""Plain texts as calibration data, with the tokenizer of the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from interpress.errors import ArgumentError, DataError

_LONGEST = 512  # tokens of one text, unless the tokenizer says fewer
_BATCH = 16


def tokenized(texts: Any, tokenizer: Any) -> list[dict[str, Tensor]]:
    """Return padded batches of tokens; texts of similar length are not moved together.

    Every text is one example. A text that is longer than what the model takes is cut off.
    """
    if not callable(tokenizer):
        raise ArgumentError(
            f"tokenizer={tokenizer!r}; give the tokenizer of the model, such as "
            "AutoTokenizer.from_pretrained(folder)"
        )
    rows = list(_rows(texts, tokenizer))
    if not rows:
        raise DataError("there are no texts; give some examples of what the model reads")
    padding = next(
        (
            value
            for name in ("pad_token_id", "eos_token_id")
            if isinstance(value := getattr(tokenizer, name, None), int)
        ),
        0,
    )
    return [_padded(rows[i : i + _BATCH], padding) for i in range(0, len(rows), _BATCH)]


def _rows(texts: Any, tokenizer: Any) -> Iterable[Sequence[int]]:
    if isinstance(texts, str):
        raise ArgumentError(
            "the calibration data are one text; give a list of texts, such as its paragraphs"
        )
    longest = min(_LONGEST, int(getattr(tokenizer, "model_max_length", _LONGEST) or _LONGEST))
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"calibration example {number} is a {type(text).__name__}; with tokenizer= every "
                "example is a text, so leave tokenizer= out, or give texts"
            )
        row = tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        if len(row):  # an empty line says nothing
            yield row


def _padded(rows: Sequence[Sequence[int]], padding: int) -> dict[str, Tensor]:
    length = max(map(len, rows))
    tokens = torch.full((len(rows), length), padding, dtype=torch.long)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.as_tensor(row)
        mask[number, : len(row)] = 1
    return {"input_ids": tokens, "attention_mask": mask}

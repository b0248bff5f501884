"""Plain texts become padded batches of tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.pretrained.models import build

import interpress
from interpress import InterpressError, Method
from interpress.data.texts import tokenized


class Letters:
    """A tokenizer with one token per letter."""

    pad_token_id: int | None = None
    eos_token_id = 2
    model_max_length = 12

    def __call__(self, text: str, truncation: bool, max_length: int) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 90 + 3 for letter in text][:max_length]}


TEXTS = [f"the {word} number {i} is here"[: 6 + i % 9] for i in range(40) for word in ("odd", "e")]


def test_texts_are_padded_with_a_mask() -> None:
    first, *_ = tokenized(["abcd", "", "ab"], Letters())
    assert first["input_ids"].tolist() == [[10, 11, 12, 13], [10, 11, 2, 2]]
    assert first["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    (long,) = tokenized(["x" * 50], Letters())
    assert long["input_ids"].shape == (1, 12)
    assert len(tokenized(TEXTS, Letters())) == 5


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
def test_a_language_model_is_compressed_from_texts() -> None:
    method = Method(allocation="constant", refit=False)
    result = interpress.compress(
        build("llama"), TEXTS, tokenizer=Letters(), flops=0.85, method=method, progress=False
    )
    assert result.agreement is not None
    assert result.agreement.tokens is not None
    assert torch.isfinite(torch.tensor(result.agreement.tokens.perplexity)).all()


@pytest.mark.parametrize(
    ("texts", "tokenizer", "message"),
    [
        ("one text", Letters(), "are one text; give a list"),
        ([], Letters(), "there are no texts"),
        ([torch.ones(2)], Letters(), "example 0 is a Tensor"),
        (["a"], "letters", "give the tokenizer of the model"),
    ],
)
def test_bad_texts_are_refused(texts: Any, tokenizer: Any, message: str) -> None:
    with pytest.raises(InterpressError, match=message):
        tokenized(texts, tokenizer)

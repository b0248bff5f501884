"""Perplexity and likeliest tokens of language models.

A model is taken to predict the next token if it returns one score per token of a vocabulary at
every position of its input, and if the last input token changes no earlier output. This is tried,
so nothing is known about the class of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size, take
from interpress.evaluation.outputs import flatten_output
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

_LIKELIEST = 5  # tokens whose overlap is reported
_Z = 1.959963984540054  # quantile of the normal distribution for a 95 % interval
_SAME = 1e-4  # relative difference that is rounding


@dataclass(frozen=True)
class TokenScores:
    """How well two language models predict the next token, and how much they agree on it."""

    tokens: int
    """How many predictions were compared."""
    perplexity: tuple[float, float]
    """Of the first and of the second model."""
    top5: float
    """Mean share of the five likeliest tokens that both models have in common."""
    unigram: float
    """The perplexity of always predicting the frequencies of the judged tokens."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of `ratio`, from how much the texts differ; None for one text."""

    @property
    def ratio(self) -> float:
        """The perplexity of the second model over that of the first."""
        return self.perplexity[1] / self.perplexity[0]

    def __str__(self) -> str:
        before, after = self.perplexity
        return (
            f"Perplexity {before:.4g} before, {after:.4g} after ({self.ratio:.3f} times) on "
            f"{self.tokens:,} tokens; the five likeliest tokens overlap by {self.top5:.1%}."
        )


class TokenTally:
    """Adds up batches of scores and the tokens that they predict."""

    def __init__(self) -> None:
        self._count = 0
        self._losses = [0.0, 0.0]
        self._per_text: list[tuple[float, int]] = []  # rise of the summed loss, tokens
        self._overlap = 0.0
        self._frequencies: dict[int, int] = {}

    def add(self, first: Tensor, second: Tensor, tokens: Tensor, mask: Tensor | None) -> None:
        """Add scores (examples, positions, vocabulary) and the input tokens at these positions."""
        for example, row in enumerate(tokens):
            following = row[1:].to(first.device).long()
            counts = torch.ones_like(following, dtype=torch.bool)
            if mask is not None:
                valid = mask[example].to(first.device).bool()
                counts = valid[1:] & valid[:-1]
            following = following[counts]
            scores = [output[example, :-1][counts].float() for output in (first, second)]
            sums = [
                float(nn.functional.cross_entropy(v, following, reduction="none").double().sum())
                for v in scores
            ]
            self._losses = [total + part for total, part in zip(self._losses, sums, strict=True)]
            self._per_text.append((sums[1] - sums[0], len(following)))
            likeliest = [v.topk(min(_LIKELIEST, v.shape[-1])).indices for v in scores]
            common = (likeliest[0][:, :, None] == likeliest[1][:, None, :]).any(-1)
            self._overlap += float(common.double().mean(-1).sum())
            self._count += len(following)
            tokens_and_counts = following.unique(return_counts=True)
            for token, count in zip(*(part.tolist() for part in tokens_and_counts), strict=True):
                self._frequencies[token] = self._frequencies.get(token, 0) + count

    def result(self) -> TokenScores | None:
        """Return the scores over all batches; None if there were none."""
        if not self._count:
            return None
        before, after = (_exp(loss / self._count) for loss in self._losses)
        shares = [count / self._count for count in self._frequencies.values()]
        unigram = math.exp(-sum(share * math.log(share) for share in shares))
        return TokenScores(
            self._count, (before, after), self._overlap / self._count, unigram, self._interval()
        )

    def _interval(self) -> tuple[float, float] | None:
        """Return the interval of the ratio of perplexities.

        The log of the ratio is a mean over tokens. Tokens of one text depend on each other, so the
        texts are what varies independently.
        """
        texts = [(rise, tokens) for rise, tokens in self._per_text if tokens]
        if len(texts) < 2:
            return None
        mean = sum(rise for rise, _ in texts) / self._count
        squares = sum((rise - mean * tokens) ** 2 for rise, tokens in texts)
        error = math.sqrt(squares * len(texts) / (len(texts) - 1)) / self._count
        return _exp(mean - _Z * error), _exp(mean + _Z * error)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def predicted_tokens(model: nn.Module, example: Example, pick: Any) -> int | None:
    """Return which input tensor holds the tokens that the model predicts; None if none does.

    `pick` chooses the deciding output from all output tensors.
    """
    one = take(example, torch.arange(1)) if batch_size(example) > 1 else example
    try:
        scores = _scores(model, one, pick)
        if scores.ndim != 3 or scores.shape[1] < 2:
            return None
        for number, tensor in enumerate(one.tensors()):
            is_tokens = (
                not tensor.is_floating_point()
                and tensor.dtype is not torch.bool
                and tensor.shape == scores.shape[:2]
                and int(tensor.min()) >= 0
                and 2 < scores.shape[-1] > int(tensor.max()) > 1
            )
            if is_tokens and _comes_last(model, one, number, pick, scores):
                return number
    except Exception:  # the model's own code; then nothing is said about tokens
        return None
    return None


def _comes_last(model: nn.Module, example: Example, number: int, pick: Any, scores: Tensor) -> bool:
    """Return whether the last token changes the last scores, and no earlier ones."""
    changed = example.tensors()[number].clone()
    changed[:, -1] = (changed[:, -1] + 1) % scores.shape[-1]
    tokens = example.tensors()[number]
    other = replace(example, masks=()).map(lambda tensor: changed if tensor is tokens else tensor)
    difference = (_scores(model, other, pick) - scores).abs()
    size = float(scores.abs().max())
    earlier, last = difference[:, :-1], difference[:, -1]
    return float(earlier.max()) <= _SAME * size < float(last.max())


def _scores(model: nn.Module, example: Example, pick: Any) -> Tensor:
    with evaluation(model), torch.no_grad():
        tensors, _ = flatten_output(example.call(model))
    chosen: Tensor = pick(list(tensors.values()))
    return chosen.detach().float()

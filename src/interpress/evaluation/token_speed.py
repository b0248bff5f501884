"""Measure how fast a language model reads a prompt and how fast it decodes with its cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interpress.errors import ArgumentError
from interpress.evaluation.latency import median_and_quartiles
from interpress.graph.model_state import evaluation

_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 25
_ENOUGH = 2.0  # seconds; networks that take longer run the fewest rounds


@dataclass(frozen=True)
class TokenSpeed:
    """Seconds of the original and of the smaller network, measured in pairs on one device.

    They are the median of the original, and that times the median ratio of the pairs.
    """

    prompt: tuple[int, int]
    """Sequences, and tokens of each, that are read at once."""
    tokens: int
    """Tokens that are then decoded one by one, per sequence."""
    prefill: tuple[float, float]
    """Seconds to read the prompt."""
    decode: tuple[float, float]
    """Seconds to decode all tokens with the cache."""
    prefill_quartiles: tuple[float, float]
    """The lower and the upper quartile of the ratios of the pairs, for the prompt."""
    decode_quartiles: tuple[float, float]
    """The same for decoding."""

    @property
    def prefill_ratio(self) -> float:
        """Time of the smaller network over the original's, for the prompt."""
        return self.prefill[1] / self.prefill[0]

    @property
    def decode_ratio(self) -> float:
        """The same for decoding."""
        return self.decode[1] / self.decode[0]

    def __str__(self) -> str:
        sequences, length = self.prompt
        rates = [sequences * self.tokens / seconds for seconds in self.decode]
        return (
            f"Prompt of {sequences} x {length} tokens: {self.prefill[0]:.3g} s before, "
            f"{self.prefill[1]:.3g} s after ({self.prefill_ratio:.2f} times; half of the pairs "
            f"{_between(self.prefill_quartiles)}). Decoding: {rates[0]:.3g} tokens/s before, "
            f"{rates[1]:.3g} after ({self.decode_ratio:.2f} times the time per token; half of the "
            f"pairs {_between(self.decode_quartiles)})."
        )


def _between(quartiles: tuple[float, float]) -> str:
    return f"{quartiles[0]:.2f} to {quartiles[1]:.2f}"


def token_speed(
    original: nn.Module, smaller: nn.Module, prompt: Tensor, tokens: int = 32
) -> TokenSpeed:
    """Measure both networks on a prompt (sequences, tokens); they are models of transformers."""
    if not isinstance(tokens, int) or tokens < 1:
        raise ArgumentError(f"tokens={tokens!r}; give a whole number of at least 1")
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    with evaluation(original), evaluation(smaller), torch.no_grad():
        started, warm_up = time.perf_counter(), True
        while len(pairs) < _MOST_ROUNDS:
            order = (original, smaller) if len(pairs) % 2 == 0 else (smaller, original)
            first, second = (_timed(network, prompt, tokens) for network in order)
            if warm_up:
                started, warm_up = time.perf_counter(), False
                continue
            pairs.append((first, second) if len(pairs) % 2 == 0 else (second, first))
            if time.perf_counter() - started > _ENOUGH and len(pairs) >= _FEWEST_ROUNDS:
                break
    prefill, prefill_quartiles = _summed_up(pairs, "prefill")
    decode, decode_quartiles = _summed_up(pairs, "decode")
    size = (prompt.shape[0], prompt.shape[1])
    return TokenSpeed(size, tokens, prefill, decode, prefill_quartiles, decode_quartiles)


def _summed_up(
    pairs: list[tuple[dict[str, float], dict[str, float]]], part: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the seconds of both networks for one part of the work, and the quartiles."""
    before = statistics.median(original[part] for original, _ in pairs)
    ratios = [smaller[part] / original[part] for original, smaller in pairs]
    ratio, quartiles = median_and_quartiles(ratios)
    return (before, before * ratio), quartiles


def _timed(model: nn.Module, prompt: Tensor, tokens: int) -> dict[str, float]:
    """Return the seconds of one prefill and of decoding the likeliest tokens after it."""
    prompt = prompt.to(next(model.parameters()).device)

    def read() -> Any:
        try:
            return model(input_ids=prompt, use_cache=True)
        except TypeError as error:
            raise ArgumentError(
                f"{type(model).__name__} does not take input_ids= and use_cache=, so decoding "
                "cannot be measured; use a causal language model of transformers"
            ) from error

    prefill, output = _measured(read, prompt.device)
    if getattr(output, "past_key_values", None) is None:
        raise ArgumentError(
            f"{type(model).__name__} returns no cache, so decoding cannot be measured; use a "
            "causal language model of transformers"
        )

    def decode() -> Any:
        last, cache = output.logits[:, -1:].argmax(-1), output.past_key_values
        for _ in range(tokens):
            step = model(input_ids=last, past_key_values=cache, use_cache=True)
            last, cache = step.logits[:, -1:].argmax(-1), step.past_key_values
        return last

    seconds, _ = _measured(decode, prompt.device)
    return {"prefill": prefill, "decode": seconds}


def _measured(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result

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
from interpress.graph.model_state import evaluation

_ROUNDS = 3  # the two networks run in turn; the median of these is reported


@dataclass(frozen=True)
class TokenSpeed:
    """Seconds of the original and of the smaller network, measured in turn on one device."""

    prompt: tuple[int, int]
    """Sequences, and tokens of each, that are read at once."""
    tokens: int
    """Tokens that are then decoded one by one, per sequence."""
    prefill: tuple[float, float]
    """Seconds to read the prompt."""
    decode: tuple[float, float]
    """Seconds to decode all tokens with the cache."""

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
            f"{self.prefill[1]:.3g} s after ({self.prefill_ratio:.2f} times). Decoding: "
            f"{rates[0]:.3g} tokens/s before, {rates[1]:.3g} after ({self.decode_ratio:.2f} times "
            "the time per token)."
        )


def token_speed(
    original: nn.Module, smaller: nn.Module, prompt: Tensor, tokens: int = 32
) -> TokenSpeed:
    """Measure both networks on a prompt (sequences, tokens); they are models of transformers."""
    if not isinstance(tokens, int) or tokens < 1:
        raise ArgumentError(f"tokens={tokens!r}; give a whole number of at least 1")
    seconds: dict[tuple[int, str], list[float]] = {}
    networks = (original, smaller)
    with evaluation(original), evaluation(smaller), torch.no_grad():
        for round_number in range(_ROUNDS + 1):
            for number, network in enumerate(networks):
                device = next(network.parameters()).device
                found = _timed(network, prompt.to(device), tokens)
                for part, value in found.items() if round_number else ():  # the first warms up
                    seconds.setdefault((number, part), []).append(value)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    return TokenSpeed(
        (prompt.shape[0], prompt.shape[1]),
        tokens,
        (medians[0, "prefill"], medians[1, "prefill"]),
        (medians[0, "decode"], medians[1, "decode"]),
    )


def _timed(model: nn.Module, prompt: Tensor, tokens: int) -> dict[str, float]:
    """Return the seconds of one prefill and of decoding the likeliest tokens after it."""

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

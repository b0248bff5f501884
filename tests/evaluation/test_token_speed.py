"""Prefill and decoding are timed on both networks; other models are refused."""

from __future__ import annotations

import pytest
import torch
from tests.pretrained.models import build, texts

import interpress
from interpress.evaluation.token_speed import token_speed


def test_both_networks_are_timed() -> None:
    model = build("llama")
    speed = token_speed(model, model, texts(2), tokens=3)
    assert speed.prompt == (2, texts(2).shape[1])
    assert speed.tokens == 3
    assert min(*speed.prefill, *speed.decode) > 0
    assert speed.decode_ratio == speed.decode[1] / speed.decode[0]
    low, high = speed.decode_quartiles
    assert low <= speed.decode_ratio * (1 + 1e-9)
    assert speed.decode_ratio <= high * (1 + 1e-9)
    assert "half of the pairs" in str(speed)
    assert "tokens/s" in str(speed)


def test_a_result_measures_itself_on_its_calibration_data() -> None:
    result = interpress.compress(build("llama"), texts(120), flops=0.8, progress=False)
    assert result.speed(batch=2, prompt=9, tokens=2).prompt == (2, 9)
    with pytest.raises(interpress.ArgumentError, match="batch=0"):
        result.speed(batch=0)


def test_models_without_a_cache_are_refused() -> None:
    with pytest.raises(interpress.ArgumentError, match="decoding cannot be measured"):
        token_speed(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), texts(1))
    with pytest.raises(interpress.ArgumentError, match="tokens=0"):
        token_speed(build("llama"), build("llama"), texts(1), tokens=0)

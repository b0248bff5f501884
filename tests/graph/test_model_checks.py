"""Models that cannot be captured are refused with the reason and a remedy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress import CaptureError, find_spaces
from interpress.graph.capture import capture


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


def test_models_without_values_are_refused() -> None:
    with torch.device("meta"):
        empty = network()
    with pytest.raises(CaptureError, match=r"'0.weight' is on the meta device.*load_state_dict"):
        capture(empty, torch.randn(2, 6))
    lazy = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(CaptureError, match=r"'0.weight' has no shape yet.*run the model once"):
        capture(lazy, torch.randn(2, 6))


def test_computed_weights_are_refused_with_a_remedy() -> None:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])
    with pytest.raises(CaptureError, match=r"module '0' computes its weight.*remove_parametriz"):
        find_spaces(model, torch.randn(2, 6))
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert find_spaces(model, torch.randn(2, 6))["0"].frozen is None
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(model[3])
    with pytest.raises(CaptureError, match=r"module '3'.*WeightNorm hook.*remove_weight_norm"):
        find_spaces(model, torch.randn(2, 6))

"""`agreement=`: the smallest network that decides the same."""

from __future__ import annotations

import pytest
import torch
from tests.digits import Trained
from torch import nn

from interpress import Analysis, ArgumentError, Method, compress


def test_a_smaller_network_that_agrees_is_found(analysis: Analysis) -> None:
    result = analysis.compress(agreement=0.98)
    assert result.flops < 0.7
    assert result.agreement is not None
    assert float(result.agreement) >= 0.98
    looser = analysis.compress(agreement=0.9, method="iterative-id")
    assert float(looser.agreement or 0) >= 0.9


def test_an_agreement_that_cannot_be_reached_says_how_near_it_came(digits: Trained) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.Linear(2, 10)).eval()
    with torch.no_grad():  # the first neuron decides between two classes, the second as well
        model[2].weight.zero_()
        model[2].weight[:4] = torch.tensor([[9.0, 0], [-9, 0], [0, 9], [0, -9]])
        model[2].bias.zero_()
    with pytest.raises(ArgumentError, match=r"agreement=1 cannot be reached.*reached 0\..*data"):
        compress(model, digits.calibration, agreement=1.0, method=Method(refit=False))


def test_a_regression_has_no_agreement(digits: Trained) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    with pytest.raises(ArgumentError, match="agreement= needs a classifier"):
        compress(model, digits.calibration, agreement=0.9)

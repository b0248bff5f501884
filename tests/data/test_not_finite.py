"""Errors about the data name the first example that holds NaN or Inf."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.data.calibration_set import CalibrationSet
from interpress.data.not_finite import inputs_blamed
from interpress.errors import DataError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3)).eval()


def inputs() -> Tensor:
    return torch.randn(100, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("index", [0, 3, 70])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_first_bad_example_is_named(index: int, value: float) -> None:
    data = inputs()
    data[index, 2] = value
    message = rf"^calibration example {index} \(counted from 0\) holds NaN or Inf; drop or repair"
    with pytest.raises(DataError, match=message):
        interpress.compress(network(), data, flops=0.5, progress=False)
    data[[80, 81]] = value
    message = rf"^calibration example {index} .* is the first of 3 that hold"
    with pytest.raises(DataError, match=message):
        interpress.compress(network(), list(data.split(30)), flops=0.5, progress=False)


class Repairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.body(torch.nan_to_num(x))
        return result


def test_a_model_that_replaces_nan_is_compressed() -> None:
    data = inputs()
    data[40, 2] = float("nan")
    assert interpress.compress(Repairs(), data, flops=0.7, progress=False).flops <= 0.7


def test_other_errors_about_finite_data_stay() -> None:
    message = "something else"
    with pytest.raises(DataError, match=message), inputs_blamed(None):
        raise DataError(message)
    data = CalibrationSet(inputs(), network())
    with pytest.raises(DataError, match=message), inputs_blamed(data):
        raise DataError(message)

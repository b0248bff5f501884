"""A small trained network on real digits, and its data."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from interpress import Analysis, analyze


class DigitNet(nn.Module):
    """Two convolutions with batch norm, a residual one, and two linear layers."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(width), nn.ReLU())  # fmt: skip
        self.inner = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
                                   nn.BatchNorm2d(2 * width), nn.ReLU())  # fmt: skip
        self.back = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(width))  # fmt: skip
        self.pool = nn.AvgPool2d(4)
        self.hidden = nn.Linear(4 * width, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.back(self.inner(x)))
        return self.out(torch.relu(self.hidden(self.pool(x).flatten(1))))


@dataclass(frozen=True)
class Trained:
    model: DigitNet
    calibration: Tensor
    test: Tensor
    labels: Tensor
    train: Tensor

    def fresh(self) -> DigitNet:
        """A copy, so that a test may do with it what it likes."""
        copy = DigitNet()
        copy.load_state_dict(self.model.state_dict())
        return copy.eval()


@pytest.fixture(scope="session")
def digits() -> Trained:
    from interpress.demo import load_digits

    data = load_digits()
    torch.manual_seed(0)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, y = data.train[0].reshape(-1, 1, 8, 8), data.train[1]
    for _ in range(8):
        for chosen in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    test = data.test[0].reshape(-1, 1, 8, 8)
    calibration = data.calibration.reshape(-1, 1, 8, 8)
    return Trained(model.eval(), calibration, test, data.test[1], x)


@pytest.fixture(scope="session")
def analysis(digits: Trained) -> Analysis:
    return analyze(digits.model, digits.calibration)

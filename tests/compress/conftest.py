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
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.float32)[order].reshape(-1, 1, 8, 8) / 16
    targets = torch.tensor(labels)[order]
    torch.manual_seed(0)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, y = images[:900], targets[:900]
    for _ in range(8):
        for chosen in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Trained(model.eval(), images[900:1200], images[1200:], targets[1200:], x)


@pytest.fixture(scope="session")
def analysis(digits: Trained) -> Analysis:
    return analyze(digits.model, digits.calibration)

"""A small residual network trained on real digits, and helpers for tests that use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class DigitNet(nn.Module):
    """Two convolutions with batch norm, one more on a residual branch, and two linear layers."""

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
    """The trained network and its images; only `train` was seen in training."""

    model: DigitNet
    calibration: Tensor
    test: Tensor
    labels: Tensor
    """Of the test images."""
    train: Tensor

    def fresh(self) -> DigitNet:
        """Return a copy that a test may change."""
        copy = DigitNet()
        copy.load_state_dict(self.model.state_dict())
        return copy.eval()


def train_digits() -> Trained:
    """Train for eight epochs on 900 images of the digits of scikit-learn."""
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


def state_of(model: nn.Module) -> dict[str, Any]:
    """Return everything about a model that a compression must not change."""
    tensors = {n: t.clone() for n, t in [*model.named_parameters(), *model.named_buffers()]}
    return {
        "tensors": tensors,
        "grads": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_pre_hooks) for module in model.modules()],
        "sizes": [
            {k: v for k, v in vars(module).items() if isinstance(v, int | tuple)}
            for module in model.modules()
        ],
    }


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    """Assert that a model is as it was when `state_of` was called."""
    after = state_of(model)
    for name, tensor in before["tensors"].items():
        assert torch.equal(after["tensors"][name], tensor), name
    parts = ("grads", "modes", "hooks", "sizes")
    assert {part: after[part] for part in parts} == {part: before[part] for part in parts}

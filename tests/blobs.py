"""A classifier of four Gaussian blobs, and calibration data that show one class rarely."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Blobs(nn.Module):
    """Four classes in eight dims, through two wide hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 48)
        self.deeper = nn.Linear(48, 48)
        self.out = nn.Linear(48, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.deeper(self.hidden(x).relu()).relu())


def blobs(classes: Tensor, generator: torch.Generator) -> Tensor:
    """Return one point of each of the classes given."""
    centres = 2.0 * torch.eye(8)[:4]
    return centres[classes] + 0.7 * torch.randn(len(classes), 8, generator=generator)


def uneven(generator: torch.Generator) -> Tensor:
    """Return 800 points of which one in fifty is of the last class."""
    rare = torch.rand(800, generator=generator) < 0.02
    labels = torch.where(rare, 3, torch.randint(3, (800,), generator=generator))
    return blobs(labels, generator)


def train_blobs() -> Blobs:
    """Train for 150 steps on as many points of every class."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Blobs()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        labels = torch.randint(4, (256,), generator=generator)
        loss = nn.functional.cross_entropy(model(blobs(labels, generator)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()

"""Unusual structures: gates, sharing, bare parameters, recurrent layers, odd inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GatedDepthwise(nn.Module):
    """A chunk-gated depthwise feed-forward network, as in image restoration."""

    def __init__(self) -> None:
        super().__init__()
        self.project_in = nn.Conv2d(8, 64, 1)
        self.dwconv = nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.project_out = nn.Conv2d(32, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.dwconv(self.project_in(x)).chunk(2, dim=1)
        return x + self.project_out(F.gelu(a) * b)


class Gated(nn.Module):
    """SwiGLU from two layers, GEGLU from one that is split, GLU as an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(12, 20), nn.Linear(12, 20), nn.Linear(20, 12)
        self.stem, self.inner = nn.Linear(9, 12), 16
        self.both, self.out = nn.Linear(12, 32), nn.Linear(16, 12)
        self.glu, self.last = nn.Sequential(nn.Linear(12, 24), nn.GLU()), nn.Linear(12, 6)
        self.norm = nn.RMSNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        value, gate = self.both(self.norm(x)).split(self.inner, dim=-1)
        x = x + self.out(value * F.gelu(gate))
        return self.last(self.glu(x))


class SharedWeights(nn.Module):
    """Two layers with one weight, and a decoder that is the transposed encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 16), nn.Linear(10, 16)
        self.second.weight = self.first.weight
        self.middle = nn.Linear(16, 14)
        self.tied = nn.Parameter(torch.randn(9, 14) / 4)
        self.head = nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x)) + torch.relu(self.second(-x))
        h = torch.relu(self.middle(h))
        code = torch.relu(h @ self.tied.T)
        return self.head(code @ self.tied)


class CalledTwice(nn.Module):
    """One block used three times, so that its input and output are one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.block = nn.Sequential(nn.Linear(12, 18), nn.ReLU(), nn.Linear(18, 12))
        self.twice = nn.Linear(12, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = torch.tanh(x + self.block(x))
        return self.head(torch.relu(self.twice(torch.relu(self.twice(x)))))


@dataclass
class TwoOutputs:
    label: Tensor
    score: Tensor


class TwoInputs(nn.Module):
    """An image and numbers in by keyword, a dataclass with two heads out."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.numbers = nn.Conv2d(3, 8, 3), nn.Linear(5, 8)
        self.joint, self.label, self.score = nn.Linear(16, 20), nn.Linear(20, 3), nn.Linear(20, 1)

    def forward(self, image: Tensor, *, numbers: Tensor) -> TwoOutputs:
        a = F.relu(self.image(image)).mean((2, 3))
        b = F.relu(self.numbers(numbers))
        h = F.relu(self.joint(torch.cat([a, b], 1)))
        return TwoOutputs(label=self.label(h), score=self.score(h).sigmoid())


class BareParameters(nn.Module):
    """No layers at all: parameters multiplied by hand, a scale, a shift and a learnt query."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(8, 15) / 3), nn.Parameter(torch.randn(15))
        self.scale = nn.Parameter(torch.rand(15) + 0.5)
        self.w2 = nn.Parameter(torch.randn(11, 15) / 3)
        self.query = nn.Parameter(torch.randn(4, 11))
        self.w3 = nn.Parameter(torch.randn(11, 6) / 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x @ self.w1 + self.b1) * self.scale
        h = torch.relu(torch.einsum("bi,oi->bo", h, self.w2))
        h = torch.tanh(h[:, None, :] + self.query)
        return torch.matmul(h, self.w3).sum(1)


class InPlace(nn.Module):
    """Operators that overwrite, and a slice that is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x.relu_()
        y = self.b(x)
        y.mul_(0.5).add_(x)
        y[:, :, 0] = 0.0
        y.clamp_(min=-1.0)
        return self.head(y.mean((2, 3)))


class Recurrent(nn.Module):
    """LSTM and GRU are frozen; what stands before and after them shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(6, 14), nn.ReLU(), nn.Linear(14, 8))
        self.lstm, self.gru = nn.LSTM(8, 10, batch_first=True), nn.GRU(10, 9, batch_first=True)
        self.head = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.lstm(self.embed(x))
        x, _ = self.gru(x)
        return self.head(x[:, -1])


class Unknown(nn.Module):
    """An operator that nobody registered: a determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 12), nn.Linear(13, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.a(x))
        d = torch.linalg.det(h.view(-1, 4, 4))
        return self.c(torch.cat([torch.relu(self.b(h)), d[:, None]], 1))


class CachesBias(nn.Module):
    """Attention with a bias by distance that the first call in evaluation mode caches."""

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.v = nn.Conv2d(3, 16, 1), nn.Conv2d(3, 12, 1)
        self.out, self.head = nn.Linear(12, 10), nn.Linear(10, 4)
        self.biases = nn.Parameter(torch.randn(2, 64) / 4)
        self.cache: dict[str, Tensor] = {}
        position = torch.arange(64)
        self.register_buffer("distances", (position[:, None] - position[None, :]).abs())

    def bias(self, device: torch.device) -> Tensor:
        if self.training:
            return self.biases[:, self.distances]
        key = str(device)
        if key not in self.cache:
            self.cache[key] = self.biases[:, self.distances]
        return self.cache[key]

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.qk(x).flatten(2).unflatten(1, (4, -1)).chunk(2, 1)  # (B, 2, 4, N) each
        v = self.v(x).flatten(2).unflatten(1, (2, -1))
        scores = (q.transpose(-1, -2) @ k + self.bias(x.device)).softmax(-1)  # (B, 2, N, N)
        mixed = (v @ scores.transpose(-1, -2)).flatten(1, 2).transpose(1, 2)
        return self.head(torch.relu(self.out(mixed)).mean(1))

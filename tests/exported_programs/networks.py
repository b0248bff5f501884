"""Small networks that are exported in many ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export


class Convolutional(nn.Module):
    """Flattens with the batch size, and has a constant that is not in its state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.hidden, self.out = nn.Linear(12 * 16, 20), nn.Linear(20, 4)
        self.register_buffer("scale", torch.full((3, 1, 1), 2.0), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.norm(self.conv(x * self.scale)).relu()
        return {"scores": self.out(self.hidden(h.view(x.shape[0], -1)).relu())}


class Transformer(nn.Module):
    """Has a class token, heads that are joined with the batch, and attention along dim 1."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        h = torch.cat([self.token.expand(batch, -1, -1), x], 1)
        parts = self.qkv(h).view(batch, -1, 3, 4, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (part.reshape(batch * 4, -1, 4) for part in parts)
        mixed = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
        h = h + self.proj(mixed.view(batch, 4, -1, 4).transpose(1, 2).reshape(batch, -1, 16))
        return self.down(self.up(h[:, 0]).relu())


class Sequence(nn.Module):
    """Works with the batch in dim 1."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x.transpose(0, 1)).reshape(5, x.shape[0], 4, 5).relu()
        return self.down(h.reshape(5, -1, 20)).mean(0)


class BatchStatistics(nn.Module):
    """Looks at the whole batch, so that no other batch size can be right."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x).relu()
        return self.down(h - h.mean(0))


def exported(model: nn.Module, *inputs: Any, free: bool = True, **keywords: Any) -> ExportedProgram:
    """Return the program of a network; `free` leaves the first dim of every input open."""
    names = [*(f"{i}" for i in range(len(inputs))), *keywords]
    shapes = tuple({0: Dim.AUTO} for _ in names) if free else None
    return export(model.eval(), inputs, keywords, dynamic_shapes=shapes, strict=False)


def saved(program: ExportedProgram, folder: Path, **extra: str) -> Path:
    """Write a program into a folder, and return its path."""
    path = folder / "model.pt2"
    torch.export.save(program, path, extra_files=extra)
    return path

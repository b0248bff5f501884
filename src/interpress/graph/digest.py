"""A hash of a model's weights."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def weights_digest(model: nn.Module) -> str:
    """Return a hash of all parameters and buffers, with their names, dtypes and shapes."""
    total = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(plain.view(torch.uint8).numpy().data)
    return total.hexdigest()

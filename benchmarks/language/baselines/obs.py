"""Optimal-brain-surgeon columns (SlimGPT, G. Ling et al., 2024): eliminate, re-solve the rest."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from benchmarks.language.neurons import Choice, Neurons, interpolation
from interpress.linalg.elimination import Consumer, eliminate


def choose(neurons: Neurons, count: int) -> Choice:
    """Drop the column whose removal costs least after all others are solved again."""
    kept = _order(neurons)[:count].sort().values
    return Choice(kept, interpolation(neurons.G, kept, 1e-6))


@cache
def _order(neurons: Neurons) -> Tensor:
    blocks = torch.arange(len(neurons.U), device=neurons.U.device)[:, None]
    return eliminate([Consumer(neurons.G, neurons.U.double(), blocks, 1.0)])[0]

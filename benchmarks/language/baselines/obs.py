"""Optimal-brain-surgeon columns (SlimGPT, G. Ling et al., 2024): eliminate, re-solve the rest."""

from __future__ import annotations

import torch

from benchmarks.language.neurons import Choice, Neurons, interpolation
from interpress.linalg.elimination import Consumer, eliminate


def choose(neurons: Neurons, count: int) -> Choice:
    """Drop the column whose removal costs least after all others are solved again."""
    blocks = torch.arange(len(neurons.U))[:, None]
    order, _ = eliminate([Consumer(neurons.G, neurons.U.double().cpu(), blocks, 1.0)])
    kept = order[:count].sort().values
    return Choice(kept, interpolation(neurons.G, kept, 1e-6))

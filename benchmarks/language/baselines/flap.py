"""FLAP (Y. An et al., 2024): keep what fluctuates, and replace the rest by its mean, as a bias."""

from __future__ import annotations

import torch

from benchmarks.language.neurons import Choice, Neurons, largest


def choose(neurons: Neurons, count: int) -> Choice:
    """Score a neuron by `Var(Z) * ||U||**2`. The mean of the others becomes a bias."""
    variance = neurons.G.diagonal() - neurons.mean.square()
    U = neurons.U.double()
    kept = largest(variance * U.square().sum(1), count)
    is_dropped = torch.ones(len(U), dtype=torch.bool, device=U.device)
    is_dropped[kept] = False
    return Choice(kept, bias=neurons.mean[is_dropped] @ U[is_dropped])

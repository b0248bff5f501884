"""Nystroem approximation of the MLP (MoDeGPT, C.-H. Lin et al., 2025)."""

from __future__ import annotations

import torch

from benchmarks.language.neurons import Choice, Neurons, interpolation, largest

_RIDGE = 1.0  # of the leverage scores, relative to the mean diagonal


def choose(neurons: Neurons, count: int) -> Choice:
    """Keep the largest ridge leverage scores; the consumer absorbs `(S.T G S)^+ S.T G`."""
    G, n = neurons.G, len(neurons.G)
    ridged = G + _RIDGE * G.diagonal().mean() * torch.eye(n).to(G)
    kept = largest(torch.linalg.solve(ridged, G).diagonal(), count)
    return Choice(kept, interpolation(G, kept, 1e-6))

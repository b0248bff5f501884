"""Magnitude: keep the neurons whose incoming weights have the largest norm."""

from __future__ import annotations

import torch

from benchmarks.language.neurons import Choice, Neurons, largest


def choose(neurons: Neurons, count: int) -> Choice:
    """Score a neuron by the product of the norms of the rows that make it."""
    score = torch.ones(len(neurons.U), device=neurons.U.device)
    for weight in neurons.producers:
        score = score * weight.norm(dim=1)
    return Choice(largest(score, count))

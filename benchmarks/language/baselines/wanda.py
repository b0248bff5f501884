"""Wanda's score, summed per neuron (M. Sun et al., 2023): |weight| times the norm of its input."""

from __future__ import annotations

from benchmarks.language.neurons import Choice, Neurons, largest


def choose(neurons: Neurons, count: int) -> Choice:
    """Score a neuron by `sum(|U|) * ||Z||`."""
    norm = neurons.G.diagonal().sqrt()
    return Choice(largest(neurons.U.abs().sum(1).double() * norm, count))

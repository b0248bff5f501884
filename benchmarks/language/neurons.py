"""What the baselines look at: the neurons of every MLP, and plain statistics of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.extend import measure_taps
from interpress.graph.example import Example
from interpress.spaces.spaces import Spaces


@dataclass(eq=False)
class Neurons:
    """One MLP: `Z` are the values of its neurons, `U` the weights that read them."""

    space: str
    tap: str
    weight: str
    """The name of the weight that reads the neurons."""
    U: Tensor
    """(neurons, outputs)"""
    producers: list[Tensor]
    """Weights whose rows make the neurons: up, and gate if there is one."""
    G: Tensor
    """(neurons, neurons) `Z.T @ Z / rows`."""
    mean: Tensor
    """(neurons,)"""


@dataclass(frozen=True, eq=False)
class Choice:
    """What a baseline does to one MLP."""

    kept: Tensor
    """The neurons that stay, ascending."""
    T: Tensor | None = None
    """(kept, neurons), if the weights that read them are corrected."""
    bias: Tensor | None = None
    """(outputs,) added to the output of the MLP, if the method adds a bias."""


def measure_neurons(spaces: Spaces, batches: Sequence[Tensor]) -> list[Neurons]:
    """Return the MLPs of a model with statistics over all tokens."""
    found, parameters = [], spaces.program.parameters()
    for space in spaces.shrinkable:
        tap = spaces.taps[space.taps[0]]
        absorber = tap.absorbers[0]
        if (
            space.heads
            or len(space.taps) > 1
            or tap.size != space.size
            or absorber.dim not in (0, 1)
        ):
            continue
        U = parameters[absorber.weight]
        U = U.T if absorber.dim == 1 else U
        producers = [parameters[name] for name in parameters if _makes(space.producers, name)]
        producers = [p if len(p) == space.size else p.T for p in producers if p.ndim == 2]
        zero = torch.zeros(space.size, space.size, dtype=torch.float64, device=U.device)
        found.append(
            Neurons(space.name, tap.name, absorber.weight, U, producers, zero, zero[0].clone())
        )
    rows = 0
    for batch in batches:
        example = Example.of(batch).without_cache(spaces.program.model)
        values = measure_taps(spaces, example, [neurons.tap for neurons in found])
        for neurons in found:
            Z = values[neurons.tap].double()
            neurons.G += Z.T @ Z
            neurons.mean += Z.sum(0)
        rows += batch.numel()
    for neurons in found:
        neurons.G /= rows
        neurons.mean /= rows
    return found


def _makes(producers: Sequence[str], name: str) -> bool:
    return any(name in (producer, f"{producer}.weight") for producer in producers)


def interpolation(G: Tensor, kept: Tensor, ridge: float) -> Tensor:
    """Return `T` (kept, neurons) by ridge regression; the ridge is relative to the diagonal."""
    system = G[kept][:, kept].clone()
    system.diagonal().add_(ridge * float(G.diagonal().mean()))
    return torch.linalg.solve(system, G[kept])


def largest(scores: Tensor, count: int) -> Tensor:
    """Return the indices of the largest scores, ascending."""
    return scores.topk(count).indices.sort().values

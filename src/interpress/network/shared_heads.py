"""Solve again for layers that read every channel of a tap several times, as with grouped queries.

Where several query heads share one key-value head, a channel of the tap is a group of heads. `T` is
then the same for all heads of a group: the first heads of the kept groups make up for the first
heads of the dropped ones, and so on. The layer that reads the heads can do better, because all its
inputs are free. So before the refit, it is solved by least squares on the inputs of the original:
`X ~= X[:, kept] @ T`, where `X` (rows, inputs) has one column per input of the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from interpress.calibration.halves import RIDGES
from interpress.calibration.study import Study
from interpress.graph.executor import Before
from interpress.spaces.read_sites import operand_of, with_operand
from interpress.surgery.cut import Cut


class InputInterpolation(NamedTuple):
    """Which inputs of a layer stay, and `T` (kept inputs, inputs)."""

    kept: Tensor
    T: Tensor


def for_all_inputs(
    study: Study, cut: Cut, taps: Iterable[str], half: int | None = None
) -> dict[str, InputInterpolation]:
    """Return, for every tap of this kind that loses columns, how all inputs are interpolated.

    They are fitted to all examples or to one half. Only language models have them. The refit of
    other networks solves for all inputs anyway.
    """
    found: dict[str, InputInterpolation] = {}
    if not study.statistics.sensitivities:
        return found
    for name in taps:
        tap = study.spaces.taps[name]
        absorber, columns = tap.absorbers[0], cut.columns(tap)
        if len(columns) == tap.size or absorber.dim != 1 or absorber.column.ndim > 1:
            continue
        if len(tap.absorbers) > 1 or not bool((absorber.repeat > 0).any()):
            continue
        moments = study.statistics.moments.get(name)
        if moments is None or moments.basis is not None or bool((absorber.column < 0).any()):
            continue
        G = moments.moments(centred=False, half=half).double()  # (inputs, inputs)
        kept = torch.nonzero(torch.isin(absorber.column, columns)).reshape(-1).to(G.device)
        system = G[kept][:, kept]
        system.diagonal().add_(RIDGES[0] * G.diagonal().mean())
        found[name] = InputInterpolation(kept, torch.linalg.solve(system, G[kept]))
    return found


def absorbed(study: Study, found: Mapping[str, InputInterpolation]) -> dict[str, Tensor]:
    """Return the weights of the layers that absorb these interpolations, by name."""
    parameters, weights = study.spaces.program.parameters(), {}
    for name, (_, T) in found.items():
        absorber = study.spaces.taps[name].absorbers[0]
        weight = parameters[absorber.weight]
        weights[absorber.weight] = (weight.to(T) @ T.T).to(weight)
    return weights


def replacing(study: Study, found: Mapping[str, InputInterpolation], before: Before) -> Before:
    """Return a hook that gives these layers interpolated inputs, and does `before` at others."""
    sites = {study.spaces.taps[name].sites[0].op.node: name for name in found}

    def hook(node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node not in sites:
            return before(node, args, kwargs)
        kept, T = found[sites[node]]
        site = study.spaces.taps[sites[node]].sites[0]
        X = operand_of(node, args, kwargs, site)
        interpolated = X[..., kept.to(X.device)] @ T.to(X)
        return with_operand(node, args, kwargs, site, interpolated)

    return hook

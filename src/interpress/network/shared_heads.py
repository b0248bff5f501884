"""Solve again for layers that read every channel of a tap several times, as with grouped queries.

Where several query heads share one key-value head, a channel of the tap is a group of heads. `T` is
then the same for all heads of a group: the first heads of the kept groups make up for the first
heads of the dropped ones, and so on. The layer that reads the heads can do better, because all its
inputs are free. So before the refit, it is solved by least squares on the inputs of the original.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from interpress.calibration.halves import RIDGES
from interpress.calibration.study import Study
from interpress.surgery.cut import Cut


def solved_for_all_inputs(study: Study, cut: Cut, taps: Iterable[str]) -> dict[str, Tensor]:
    """Return new weights for a cut, by name: `W @ T.T` with one `T` for all inputs of the layer.

    Only language models have them. The refit of other networks solves for all inputs anyway.
    """
    if not study.statistics.sensitivities:
        return {}
    weights = {}
    for name in taps:
        tap = study.spaces.taps[name]
        absorber, kept_columns = tap.absorbers[0], cut.columns(tap)
        if len(kept_columns) == tap.size or absorber.dim != 1 or absorber.column.ndim > 1:
            continue
        if len(tap.absorbers) > 1 or not bool((absorber.repeat > 0).any()):
            continue
        moments = study.statistics.moments.get(name)
        if moments is None or moments.basis is not None or bool((absorber.column < 0).any()):
            continue
        G = moments.moments(centred=False).double()  # (inputs, inputs)
        kept = torch.nonzero(torch.isin(absorber.column, kept_columns)).reshape(-1).to(G.device)
        system = G[kept][:, kept]
        system.diagonal().add_(RIDGES[0] * G.diagonal().mean())
        T = torch.linalg.solve(system, G[kept])  # (kept inputs, inputs)
        weight = study.spaces.program.parameters()[absorber.weight]
        weights[absorber.weight] = (weight.to(T) @ T.T).to(weight)
    return weights

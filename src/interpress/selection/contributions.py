"""What single channels contribute to the outputs of their consumer, on a few examples."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.graph.dense import sample_rows
from interpress.graph.rows import BatchRows
from interpress.selection.activations import TapSample
from interpress.selection.profile import Profile

_POSITIONS = 16  # output positions per example, before rows are sampled from all of them


def patches_and_weights(
    sample: TapSample, rows: int, generator: torch.Generator
) -> tuple[Tensor, Tensor] | None:
    """Return inputs (rows, columns, kernel) and weights (outputs, columns, kernel) of a consumer.

    None if the consumer is not one dense layer that reads every column once.
    """
    dense, weight = sample.dense, sample.weight
    if dense is None or weight is None or dense.groups > 1:
        return None
    column = sample.tap.absorbers[0].column
    if column.ndim > 1 or bool((column < 0).any()):
        return None
    # all examples of a batch share positions, so take many positions and then sample rows
    examples = len(sample.operand)
    per_example = max(-(-rows // examples), _POSITIONS)
    at = dense.positions(sample.operand, per_example, BatchRows(examples))
    X = dense.inputs(sample.operand, at)[:, 0].float()
    W = weight.detach().float().flatten(1)
    shape = (len(column), W.shape[1] // len(column))
    order = torch.argsort(column, stable=True).to(X.device)  # entries of a column side by side
    X = X.reshape(-1, *shape)[:, order].reshape(len(X), sample.tap.size, -1)
    W = W.reshape(-1, *shape)[:, order].reshape(len(W), sample.tap.size, -1)
    kept = sample_rows(len(X), rows, generator)
    return (X if kept is None else X[kept.to(X.device)]), W


def summed_by_unit(values: Tensor, sample: TapSample, profile: Profile) -> Tensor:
    """Return (..., units) from (..., columns): the sum over the columns of each unit."""
    units = sample.units(profile.space)
    columns = torch.nonzero(units >= 0).reshape(-1)
    total = values.new_zeros(*values.shape[:-1], profile.space.size)
    index = columns.to(values.device)
    return total.index_add_(-1, units[columns].to(values.device), values[..., index])

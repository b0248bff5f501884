"""What single channels contribute to the outputs of the layer that reads them, on some examples."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.graph.dense import sample_rows
from interpress.selection.profile import Profile, TapSample

_PLACES = 16


def patches_and_weights(
    look: TapSample, rows: int, generator: torch.Generator
) -> tuple[Tensor, Tensor] | None:
    """Rows of inputs (rows, columns, taps) and the weights (outputs, columns, taps) of a reader.

    None where the reader is not one dense layer that sees every column once.
    """
    dense, weight = look.dense, look.weight
    if dense is None or weight is None or dense.groups > 1:
        return None
    column = look.tap.absorbers[0].column
    if column.ndim > 1 or bool((column < 0).any()):
        return None
    # places are shared by the examples of a batch: many of them, then some rows of all
    at = dense.positions(look.operand, max(rows, _PLACES * len(look.operand)), generator)
    X = dense.inputs(look.operand, at)[:, 0].float()
    W = weight.detach().float().flatten(1)
    per_entry = W.shape[1] // len(column)
    order = torch.argsort(column, stable=True).to(X.device)  # entries of a column side by side
    shape = (len(column), per_entry)
    X = X.reshape(-1, *shape)[:, order].reshape(len(X), look.tap.size, -1)
    W = W.reshape(-1, *shape)[:, order].reshape(len(W), look.tap.size, -1)
    keep = sample_rows(len(X), rows, generator)
    return (X if keep is None else X[keep.to(X.device)]), W


def summed_by_unit(values: Tensor, look: TapSample, profile: Profile) -> Tensor:
    """(..., columns) as (..., units): what belongs to one unit added up."""
    units = look.units(profile.space)
    mine = torch.nonzero(units >= 0).reshape(-1)
    total = values.new_zeros(*values.shape[:-1], profile.space.size)
    return total.index_add_(-1, units[mine].to(values.device), values[..., mine.to(values.device)])

"""The weights that produce and carry the channels of one space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.selection.units import columns_by_unit, units_of
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces


@dataclass(frozen=True, eq=False)
class ProducerWeights:
    """The weights that produce and carry the units of one space."""

    space: ChannelSpace
    _spaces: Spaces = field(repr=False)
    _parameters: Mapping[str, Tensor] = field(repr=False)

    def filters(self) -> list[Tensor]:
        """Return, per producer, one row of weights per unit."""
        return [rows for name in self.space.producers for rows in self._rows(name)]

    def scales(self) -> list[Tensor]:
        """Return, per batch norm that carries the space, one row of scales per unit."""
        model = self._spaces.program.model
        scales = []
        for name in self.space.carriers:
            owner, _, attribute = name.rpartition(".")
            if attribute == "weight" and hasattr(model.get_submodule(owner), "running_var"):
                scales += self._rows(name)
        return scales

    def norms(self, p: float) -> Tensor:
        """Return, per unit, the p-norm of its filters, summed over producers.

        Every producer is scaled to the same mean norm first.
        """
        total = torch.zeros(self.space.size, dtype=torch.float64)
        for rows in self.filters():
            norms = torch.linalg.vector_norm(rows, p, dim=1)
            total += norms / norms.mean().clamp(min=1e-300)
        return total

    def _rows(self, name: str) -> list[Tensor]:
        """Return a weight as one row per unit, along every dim that produces or carries them."""
        weight = self._parameters[name].detach().double().cpu()
        absorbers = (a for tap in self._spaces.taps.values() for a in tap.absorbers)
        consuming_dims = {absorber.dim for absorber in absorbers if absorber.weight == name}
        rows_by_dim = []
        for labelling in self._spaces.trace.weights[name].channels():
            if len(labelling.support) != 1 or labelling.support[0] in consuming_dims:
                continue
            units = units_of(self._spaces, self.space, labelling.labels.reshape(-1))
            index = columns_by_unit(units, self.space.size)
            if index is not None:
                entries = weight.movedim(labelling.support[0], 0)
                rows = entries.reshape(len(entries), -1)[index]
                rows[index < 0] = 0  # a unit that this weight makes fewer channels of
                rows_by_dim.append(rows.reshape(self.space.size, -1))
        return rows_by_dim

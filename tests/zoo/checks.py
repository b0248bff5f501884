"""Helpers for every network: plant redundancy, measure `T`, compare outputs, count costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation, output_tensors
from interpress.linalg import FactorStream, order_as_given
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import measure_taps


def halved(space: ChannelSpace, seed: int) -> Tensor:
    """Return a random half of every cell, at least one channel each."""
    generator = torch.Generator().manual_seed(seed)
    shares = space.size // space.step
    share = max(1, shares // 2)
    kept = []
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1)
        order = torch.randperm(len(members), generator=generator)
        kept.append(members[order[: len(members) * share // shares]])
    return torch.cat(kept).sort().values


def plant(spaces: Spaces, kept: dict[str, Tensor]) -> None:
    """Make every dropped channel a copy of a kept one of its cell, in all weights that produce it.

    Weights that absorb `T` are left alone: they read the copies as they read any channel. A dropped
    head becomes a copy in all of its weights.
    """
    absorbed = _absorbed_labels(spaces)
    parameters = spaces.program.parameters()
    stand_ins = {
        spaces.index(spaces[name]): _stand_ins(spaces[name], index) for name, index in kept.items()
    }
    for name, value in spaces.trace.weights.items():
        for labelling in value.channels():
            if len(labelling.support) == 1:
                source = _sources(labelling.labels.reshape(-1), spaces, stand_ins, absorbed)
                _copy(parameters[name], labelling.support[0], source)
            else:  # dim 1 of a grouped convolution: other channels in every row
                rows = labelling.labels.reshape(labelling.labels.shape[:2])
                for row, labels in zip(parameters[name], rows, strict=True):
                    _copy(row, 0, _sources(labels, spaces, stand_ins, absorbed))


def _stand_ins(space: ChannelSpace, kept: Tensor) -> Tensor:
    """Return, per channel, the kept channel of its cell that it is to equal."""
    stand_ins = torch.arange(space.size)
    kept_channels = set(kept.tolist())
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1).tolist()
        kept_members = [m for m in members if m in kept_channels]
        for number, member in enumerate(m for m in members if m not in kept_channels):
            stand_ins[member] = kept_members[number % len(kept_members)]
    return stand_ins


def _sources(
    flat: Tensor, spaces: Spaces, stand_ins: dict[int, Tensor], absorbed: Tensor
) -> Tensor:
    """Return, per index along a dim, the index whose entries it takes over."""
    source = torch.arange(len(flat))
    channels, heads, members = spaces.membership.levels
    for level in (channels, members, heads):  # a group is a copy of what its stand-in is now
        indices: dict[tuple[int, int], list[int]] = {}  # of every unit of every space
        for index, label in enumerate(flat.tolist()):
            if not bool(absorbed[label]) or (
                level is not channels and bool(absorbed[label] == _BY_CHANNEL)
            ):
                key = (int(level.space[label]), int(level.unit[label]))
                indices.setdefault(key, []).append(index)
        replaced = source.clone()
        for (space, unit), unit_indices in indices.items():
            if space in stand_ins and int(stand_ins[space][unit]) != unit:
                replaced[unit_indices] = source[indices[(space, int(stand_ins[space][unit]))]]
        source = replaced
    return source


def _copy(weight: Tensor, dim: int, source: Tensor) -> None:
    with torch.no_grad():
        weight.copy_(weight.index_select(dim, source.to(weight.device)).clone())


_BY_CHANNEL, _BY_HEAD = 1, 2


def _absorbed_labels(spaces: Spaces) -> Tensor:
    """Return, per label, if it is absorbed within each head (a query), across heads, or not."""
    absorbed = torch.zeros(spaces.trace.size, dtype=torch.long)
    for tap in spaces.taps.values():
        how = _BY_CHANNEL if tap.of_activations else _BY_HEAD
        for absorber in tap.absorbers:
            for labelling in spaces.trace.weights[absorber.weight].channels():
                if labelling.support[-1] == absorber.dim:
                    labels = labelling.labels.reshape(-1)
                    reads = absorber.column.reshape(-1) >= 0
                    absorbed[labels[reads] if len(labels) == len(reads) else labels] = how
    return absorbed


def interpolations(spaces: Spaces, cut: Cut) -> dict[str, Tensor]:
    """Return `T` of every tap that loses channels, from the activations on the example."""
    matrices = {}
    Z = measure_taps(spaces)
    for name, tap in spaces.taps.items():
        kept = cut.columns(tap)
        if len(kept) == tap.size:
            continue
        T = torch.zeros(len(kept), tap.size, dtype=torch.float64)
        for group in tap.groups[kept].unique().tolist():
            columns = torch.nonzero(tap.groups == group).reshape(-1)
            inside = torch.nonzero(torch.isin(columns, kept)).reshape(-1)
            rows = torch.nonzero(torch.isin(kept, columns)).reshape(-1)
            T[rows[:, None], columns] = _interpolation(Z[name][:, columns], inside)
        matrices[name] = T
    return matrices


def _interpolation(Z: Tensor, kept: Tensor) -> Tensor:
    stream = FactorStream(Z.shape[1], route="tsqr")
    stream.add(Z.double())
    dropped = [column for column in range(Z.shape[1]) if column not in set(kept.tolist())]
    order = torch.tensor([*kept.tolist(), *dropped])
    return order_as_given(stream.factor(), order).at_rank(len(kept)).T


def difference(a: nn.Module, b: nn.Module, example: Any) -> float:
    """Return the largest relative difference between two networks' outputs."""
    largest = 0.0
    for x, y in zip(
        output_tensors(a, Example.of(example)), output_tensors(b, Example.of(example)), strict=True
    ):
        assert x.shape == y.shape
        if x.is_floating_point():
            largest = max(largest, float((x - y).double().norm() / y.double().norm()))
    return largest


def counted_flops(model: nn.Module, example: Any) -> int:
    """Return the FLOPs as PyTorch counts them; it counts attention only as plain products."""
    counter = FlopCounterMode(display=False)
    with evaluation(model), sdpa_kernel(SDPBackend.MATH), torch.no_grad(), counter:
        Example.of(example).call(model)
    return counter.get_total_flops()


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())

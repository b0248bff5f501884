"""Every label knows its space; a mask over a space says which labels are kept."""

from __future__ import annotations

import torch
from torch import nn

from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces


def spaces() -> Spaces:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return spaces_of(capture(model, torch.randn(2, 4)))


def labels_of(found: Spaces, weight: str, dim: int) -> torch.Tensor:
    return found.trace.weights[weight].labellings[dim].labels.reshape(-1)


def test_labels_of_makers_and_readers_belong_to_the_same_space() -> None:
    found = spaces()
    membership = found.membership
    for weight, dim in (("0.weight", 0), ("0.bias", 0), ("2.weight", 1)):
        labels = labels_of(found, weight, dim)
        assert membership.spaces_in(labels) == [found.names.index("0")]
        assert membership.units(found.names.index("0"), labels).tolist() == list(range(6))
    assert membership.spaces_in(labels_of(found, "0.weight", 1)) == []  # the model's input


def test_kept_labels() -> None:
    found = spaces()
    mask = torch.tensor([True, False, True, True, False, True])
    kept = found.membership.kept({found.names.index("0"): mask})
    for weight, dim in (("0.weight", 0), ("2.weight", 1)):
        assert torch.equal(kept[labels_of(found, weight, dim)], mask)
    assert bool(kept[labels_of(found, "2.weight", 0)].all())


def test_joined_spaces() -> None:
    found = spaces()
    membership = found.membership.joined(0, 1, offset=6)
    assert membership.spaces_in(labels_of(found, "2.weight", 0)) == [0]
    assert membership.units(0, labels_of(found, "2.weight", 0)).tolist() == list(range(6, 11))
    assert membership.spaces_in(labels_of(found, "4.weight", 0)) == [1]

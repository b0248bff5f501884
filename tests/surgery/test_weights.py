"""Smaller copies share no storage with the original, and keep what the original shares."""

from __future__ import annotations

import threading

import pytest
import torch
from tests.zoo.checks import halved
from torch import nn

from interpress import SurgeryError, find_spaces
from interpress.surgery.cut import Cut
from interpress.surgery.weights import copy_with, shrunk_copy


def test_shared_weights_stay_shared() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Linear(3, 8), nn.ReLU())
    model.append(nn.Linear(8, 3))
    model[5].weight = model[2].weight
    spaces = find_spaces(model, torch.randn(4, 6))
    kept = {s.name: halved(s, seed=0) for s in spaces.shrinkable}
    small = shrunk_copy(Cut(spaces, kept))
    assert small[5].weight is small[2].weight


def test_a_smaller_copy_shares_no_storage_with_the_original() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    spaces = find_spaces(model, torch.randn(4, 6))
    small = shrunk_copy(Cut(spaces, {"0": [1, 2, 5]}))
    storages = [
        {tensor.untyped_storage().data_ptr() for tensor in network.state_dict().values()}
        for network in (model, small)
    ]
    assert not storages[0] & storages[1]
    assert [p.requires_grad for p in small.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]


def test_replaced_tensors_keep_their_kind_and_attributes() -> None:
    model = nn.BatchNorm1d(4)
    model.weight.note = "kept"
    copy = copy_with(model, {"weight": torch.ones(2), "running_mean": torch.zeros(2)})
    assert isinstance(copy.weight, nn.Parameter)
    assert copy.weight.note == "kept"
    assert "running_mean" in dict(copy.named_buffers())
    assert (len(copy.weight), len(copy.running_mean), len(copy.bias)) == (2, 2, 4)
    assert len(model.weight) == 4


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model.lock = threading.Lock()
    with pytest.raises(SurgeryError, match=r"Sequential cannot be copied.*remove attributes"):
        find_spaces(model, torch.randn(3, 4))

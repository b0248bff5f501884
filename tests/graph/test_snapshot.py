"""A snapshot undoes what a forward writes, and needs no copy of a large model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.errors import CaptureError
from interpress.graph import snapshot
from interpress.graph.snapshot import Snapshot
from interpress.surgery.weights import copy_with


class Writes(nn.Module):
    """Writes a parameter, a buffer and an attribute."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(3, 3), nn.Embedding(5, 3, max_norm=0.1)
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        return self.layer(x + self.table(torch.arange(3)))

    def update(self) -> None:
        with torch.no_grad():
            self.layer.weight.mul_(2)


def state(model: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in model.state_dict().values()]


@pytest.mark.parametrize("large", [False, True])
def test_what_a_forward_writes_is_undone(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_COPIED", 0 if large else 2**30)
    model = Writes()
    before = state(model)
    taken = Snapshot(model)
    model(torch.randn(3, 3))
    assert not torch.equal(model.table.weight, before[2])
    taken.restore()
    assert all(torch.equal(a, b) for a, b in zip(state(model), before, strict=True))
    assert model.calls == 0


def test_a_small_model_that_writes_a_parameter_is_restored() -> None:
    model = Writes()
    before = state(model)
    taken = Snapshot(model)
    model.update()
    taken.restore()
    assert all(torch.equal(a, b) for a, b in zip(state(model), before, strict=True))


def test_a_copy_is_known_to_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Writes()
    taken = Snapshot(model)
    model.update()
    taken.restore()
    copy = copy_with(model, {})
    assert isinstance(copy, Writes)
    monkeypatch.setattr(snapshot, "_COPIED", 0)  # only what is known to be written is copied
    before = state(copy)
    taken = Snapshot(copy)
    copy.update()
    taken.restore()
    assert all(torch.equal(a, b) for a, b in zip(state(copy), before, strict=True))


def test_a_large_model_that_writes_a_parameter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_COPIED", 0)
    model = Writes()
    taken = Snapshot(model)
    model.update()
    with pytest.raises(
        CaptureError, match=r"writes its parameter 'layer.weight'.*load its weights"
    ):
        taken.restore()

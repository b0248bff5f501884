"""A snapshot undoes what a forward writes, and needs no copy of a large model."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import numpy as np
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


def test_what_a_forward_writes_into_its_attributes_is_undone() -> None:
    class Logging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.counts = torch.zeros(1), np.zeros(2)
            self.log: dict[str, list[int]] = {"n": []}
            self.last: deque[int] = deque([1], maxlen=2)
            self.state = SimpleNamespace(calls=0, shapes=[])

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            self.counts += 1
            self.log["n"].append(len(x))
            self.last.append(len(x))
            self.state.calls += 1
            self.state.shapes.append(x.shape)
            return x

    model = Logging()
    seen, shapes = model.seen, model.state.shapes
    before = Snapshot(model)
    model(torch.zeros(3))
    before.restore()
    assert model.seen is seen
    assert float(model.seen) == 0
    assert not model.counts.any()
    assert model.log == {"n": []}
    assert list(model.last) == [1]
    assert model.state.calls == 0
    assert model.state.shapes is shapes
    assert not shapes

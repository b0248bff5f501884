"""What a forward writes is undone, even if Ctrl-C arrives while it is being undone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import CaptureError
from interpress.graph import snapshot
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors

DATA = torch.randn(120, 8, generator=torch.Generator().manual_seed(1))


class Body(nn.Module):
    """An MLP whose subclasses write in their forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 24), nn.Dropout(0.1), nn.Linear(24, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def compress(model: nn.Module) -> interpress.Result:
    return interpress.compress(model, DATA, flops=0.5, progress=False)


class Interrupts:
    """Presses Ctrl-C in some calls of a function."""

    def __init__(self, function: Any, calls: set[int]) -> None:
        self.function, self.calls, self.count = function, calls, 0

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        if self.count in self.calls:
            signal.raise_signal(signal.SIGINT)
        return self.function(*args)


CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "output_tensors": lambda model: output_tensors(model, Example.of(DATA)),
    "find_spaces": lambda model: interpress.find_spaces(model, DATA[:4], progress=False),
    "agreement": lambda model: interpress.agreement(model, Body(), DATA),
    "compress": compress,
}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, which it does not in a job that a shell put aside."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("before_last", [{0}, {3}, {6}, {6, 5, 3}])
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_while_modes_are_restored(
    monkeypatch: pytest.MonkeyPatch, call: str, before_last: set[int]
) -> None:
    model = Body().train()
    model.body[0].eval()  # a mode of its own
    modes = {name: module.training for name, module in model.named_modules()}
    restore = snapshot._restore_attributes
    undisturbed = Interrupts(restore, set())
    monkeypatch.setattr(snapshot, "_restore_attributes", undisturbed)
    CALLS[call](model)
    interrupts = Interrupts(restore, {undisturbed.count - calls for calls in before_last})
    monkeypatch.setattr(snapshot, "_restore_attributes", interrupts)
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](model)
    assert {name: module.training for name, module in model.named_modules()} == modes


class Widens(Body):
    """Re-assigns a buffer, in float64."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        self.average = 0.9 * self.average.double() + 0.1 * y.detach().double().mean(0)
        return y + 0 * self.average.to(x.dtype)


def test_a_buffer_that_becomes_float64_is_float32_again() -> None:
    model = Widens()
    average = model.average
    result = compress(model)
    assert model.average is average
    for network in (model, result.model):
        saved = network.state_dict()["average"]
        assert torch.equal(saved, torch.zeros(4))
        assert saved.dtype == torch.float32
    result.model(DATA).sum().backward()


class WidensInPlace(Body):
    """Gives a buffer other data, in float64, which torch.export cannot follow."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.data = self.scale.data.double() + 1
        return self.body(x)


def test_a_buffer_with_other_data_is_refused_and_restored() -> None:
    model = WidensInPlace()
    scale, address = model.scale, model.scale.data_ptr()
    with pytest.raises(CaptureError, match="could not capture WidensInPlace"):
        compress(model)
    assert model.scale is scale
    assert (scale.dtype, scale.data_ptr()) == (torch.float32, address)
    assert torch.equal(scale, torch.ones(4))


class Counts(nn.Module):
    """Like a batch norm that counts its forwards and averages its inputs, in any mode."""

    forwards: Tensor
    mean: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("forwards", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        self.forwards.add_(1)
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x


class Counted(Body):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.counts(self.body(x))


def assert_untouched(model: nn.Module) -> None:
    assert isinstance(model, Counted)
    assert int(model.counts.forwards) == 0
    assert not bool(model.counts.mean.any())


@pytest.mark.parametrize("training", [True, False])
def test_our_own_checks_advance_no_statistics(training: bool, tmp_path: Path) -> None:
    model = Counted().train(training)
    spaces = interpress.find_spaces(model, DATA[:4], progress=False)
    assert_untouched(interpress.shrink(spaces, {"body.0": range(16)}))
    assert_untouched(model)
    result = compress(model)
    interpress.agreement(model, result.model, DATA)
    result.report(tmp_path / "report.html", evaluation=DATA)
    result.save(tmp_path / "half")
    loaded = interpress.load(tmp_path / "half", Counted())
    for network in (model, result.model, loaded):
        assert_untouched(network)
    loaded(DATA)
    assert isinstance(loaded, Counted)
    assert int(loaded.counts.forwards) == 1  # it still counts for the user

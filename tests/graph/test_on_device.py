"""Operators run on one device, wherever their operands are. The meta device stands for another."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from interpress.graph.capture import _on_one_device, capture
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.on_device import OnDevice, common_device, compute_device, placed

META, CPU = torch.device("meta"), torch.device("cpu")


class Creates(nn.Module):
    """Makes tensors on the device of its weight, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        offset = torch.arange(4, device=self.linear.weight.device)
        return self.linear(x) * self.scale + offset + x.new_zeros(4)


def test_the_model_computes_elsewhere_and_stays_where_it_is() -> None:
    model = Creates()
    example = Example((torch.ones(2, 4, device=META),), device=META)
    assert example.call(model).device == META
    assert {t.device for t in [*model.parameters(), *model.buffers()]} == {CPU}
    here = Example((torch.ones(2, 4),), device=CPU)
    assert here.at_home(model).device is None
    assert here.at_home(model).args[0].device == CPU


def test_a_mode_that_names_the_model_s_own_device_changes_nothing() -> None:
    model, x = Creates(), torch.randn(2, 4)
    with OnDevice(CPU):
        assert torch.equal(model(x), model(x))
    assert torch.equal(Example((x,), device=CPU).call(model), model(x))


def test_a_program_computes_where_its_example_is() -> None:
    program = capture(Creates(), torch.randn(3, 4))
    assert not program.computes_elsewhere
    assert program.device == CPU
    example = replace(program.example.map(lambda t: t.to(META)), device=META)
    executor = Executor(replace(program, example=example))
    (output,) = executor.run()
    assert output.device == META
    assert executor.weights["linear.weight"].device == CPU
    nodes = list(program.operators())
    with executor.holding(nodes), executor.holding(nodes[:1]):
        held = [value for value in executor._constants.held.values() if value.ndim]
        assert held
        assert all(value.device == META for value in held)
    assert not executor._constants.held


def test_a_model_on_several_devices_is_captured_without_its_values() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    model[2].to(META)
    exported, inputs = _on_one_device(model, Example((torch.ones(3, 4),), device=CPU))
    assert common_device(exported.parameters()) == CPU
    assert inputs.args[0].device == CPU
    assert common_device(model.parameters()) is None


def test_writes_reach_the_memory_that_they_should() -> None:
    buffer, ones = torch.zeros(4), torch.ones(4)
    with OnDevice(META):
        buffer[1:2].fill_(3.0)  # through a view, on the CPU alone
        buffer.add_(ones)
        made = torch.zeros(2)
        shape_only = buffer + made.new_ones(4)
    assert buffer.tolist() == [1, 4, 1, 1]
    assert made.device == META  # what is created without operands
    assert shape_only.device == META  # operands on two devices


def test_arguments_are_placed() -> None:
    moved = placed({"x": [torch.ones(2)], "device": CPU, "n": 3}, META)
    assert moved["x"][0].device == META
    assert (moved["device"], moved["n"]) == (META, 3)
    assert compute_device(nn.ReLU()) == CPU

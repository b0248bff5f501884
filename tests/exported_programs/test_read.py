"""Exported programs as networks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.exported_programs.networks import Convolutional, exported, saved
from torch import Tensor, nn
from torch.export import export

from interpress import CaptureError, find_spaces, read_exported
from interpress.exported_programs.read import is_exported
from interpress.exported_programs.source import exported_source


def test_parameters_keep_their_names() -> None:
    model = Convolutional()
    program = exported(model, torch.randn(4, 3, 4, 4))
    network = read_exported(program)
    assert dict(network.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert "scale" in dict(network.named_buffers())
    source = exported_source(network)
    assert source is not None
    assert source.program is program


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), nn.Dropout(0.5)])
def test_training_mode_is_refused(layer: nn.Module) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), layer, nn.Linear(6, 3)), torch.randn(4, 6)
    with pytest.raises(CaptureError, match=r"training mode.*model\.eval\(\)"):
        read_exported(export(model.train(), (x,)))
    read_exported(export(model.eval(), (x,)))


def test_instance_norms_always_use_the_statistics_of_the_example() -> None:
    model = nn.Sequential(nn.Conv1d(2, 6, 3), nn.InstanceNorm1d(6), nn.Conv1d(6, 3, 3)).eval()
    x = torch.randn(4, 2, 9)
    assert torch.allclose(read_exported(exported(model, x))(x), model(x))


def test_modes_can_be_set_and_change_nothing() -> None:
    x = torch.randn(4, 3, 4, 4)
    network = read_exported(exported(Convolutional(), x))
    expected = network(x)["scores"]
    assert torch.equal(network.train()(x)["scores"], expected)
    assert network.eval() is network
    assert not network.training


def test_what_is_an_exported_program() -> None:
    assert is_exported("folder/model.PT2")
    assert is_exported(exported(Convolutional(), torch.randn(4, 3, 4, 4)))
    assert not is_exported("model.onnx")
    assert not is_exported(Convolutional())


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of run_decompositions
def test_a_decomposed_program_has_the_same_spaces() -> None:
    torch.manual_seed(0)
    model, x = Convolutional().eval(), torch.randn(4, 3, 4, 4)
    program = exported(model, x)
    core = program.run_decompositions()
    expected = {s.name: s.size for s in find_spaces(program, x).shrinkable}
    assert {s.name: s.size for s in find_spaces(core, x).shrinkable} == expected
    assert {"conv", "hidden"} <= expected.keys()


def test_tied_weights_are_one_parameter_again(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.out.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.first(x).mean(1))

    path = saved(exported(Tied(), torch.randint(9, (4, 3))), tmp_path)
    assert len(list(read_exported(path).parameters())) == 1

"""Models that accelerate dispatched are compressed through a copy without hooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import interpress
from interpress.graph.dispatched import without_dispatch

accelerate = pytest.importorskip("accelerate")
DATA = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 24), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(24, 4)).eval()


def on_disk(model: nn.Module, folder: Path) -> None:
    accelerate.disk_offload(model, str(folder), execution_device=CPU)


def in_parts(model: nn.Module, folder: Path) -> None:
    places = {"0": "cpu", "1": "cpu", "2": "cpu", "3": "disk", "4": "cpu", "5": "disk"}
    accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=str(folder))


def on_the_cpu(model: nn.Module, folder: Path) -> None:
    accelerate.cpu_offload(model, execution_device=CPU, offload_buffers=True)


@pytest.mark.parametrize("dispatch", [on_disk, in_parts, on_the_cpu])
def test_the_result_is_that_of_the_model_as_it_was(
    dispatch: Callable[[nn.Module, Path], None], tmp_path: Path
) -> None:
    expected = interpress.compress(network(), DATA, flops=0.6, progress=False)
    model = network()
    dispatch(model, tmp_path)
    places = {name: tensor.device for name, tensor in model.named_parameters()}
    before = model(DATA[:4])
    result = interpress.compress(model, DATA, flops=0.6, progress=False)
    for one, other in zip(result.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not any(hasattr(module, "_hf_hook") for module in result.model.modules())
    assert torch.equal(model(DATA[:4]), before)  # with its hooks
    assert places == {name: tensor.device for name, tensor in model.named_parameters()}
    assert torch.device("meta") in places.values()


def test_what_is_on_a_device_is_shared_and_other_models_are_returned_as_they_are() -> None:
    model = network()
    assert without_dispatch(model) is model
    accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    plain = without_dispatch(model)
    assert plain is not model
    assert plain[0].weight.data_ptr() == model[0].weight.data_ptr()
    assert "forward" not in vars(plain[0])

"""Networks and weights of every kind load; nothing in a weight file runs."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import Shell, small
from torch import Tensor

from interpress.cli.loading import checked_device, load_model, read_weights, weights_file_of
from interpress.cli.model_options import ModelOptions
from interpress.errors import ArgumentError


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(first[n].equal(second[n]) for n in first)


@pytest.mark.parametrize("weights", ["w.safetensors", "w.pt", "nested.pt"])
@pytest.mark.usefixtures("shell")
def test_weights_of_every_kind(weights: str) -> None:
    model = load_model(ModelOptions("nets.py:small", weights=Path(weights)))
    assert same(model.state_dict(), small().state_dict())
    assert not model.training


@pytest.mark.usefixtures("shell")
def test_weights_saved_inside_data_parallel() -> None:
    state = {f"module.{n}": t.contiguous() for n, t in small().state_dict().items()}
    save_file(state, "parallel.safetensors")
    model = load_model(ModelOptions("nets.py:small", weights=Path("parallel.safetensors")))
    assert same(model.state_dict(), small().state_dict())
    assert len(read_weights(Path("parallel.safetensors"))) == len(state)


def test_arguments_reach_the_function(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_model(ModelOptions("nets.py:small", ["classes=7", "channels=1"]))
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 7)
    assert "no --weights for nets.py:small" in capsys.readouterr().err
    load_model(ModelOptions("nets.py:small"), warn_if_untrained=False)
    assert capsys.readouterr().err == ""


def test_devices_are_checked() -> None:
    assert checked_device("cpu") == torch.device("cpu")
    with pytest.raises(ArgumentError, match="--device meta cannot be used"):
        checked_device("meta")


def test_the_report_has_the_hash_of_the_weights_file(shell: Shell) -> None:
    expected = hashlib.sha256(Path("w.safetensors").read_bytes()).hexdigest()
    given = ModelOptions("nets.py:small", weights=Path("w.safetensors"))
    assert weights_file_of(given) == ("w.safetensors", expected)
    assert weights_file_of(ModelOptions("nets.py:small")) is None
    arguments = ("nets.py:small", "--weights", "w.safetensors", "--data", "x.npy")
    assert shell("compress", *arguments, "--flops", "0.5", "--out", "half") == 0
    plan = json.loads(Path("half/plan.json").read_text())
    assert plan["report"]["weights_file"] == ["w.safetensors", expected]
    assert expected in Path("half/report.html").read_text()

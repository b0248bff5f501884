"""`interpress compress model.onnx` writes a smaller ONNX file."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.cli.conftest import Shell, small
from tests.onnx_files.exported import difference, export, outputs, run

import interpress


@pytest.fixture
def file(shell: Shell) -> Path:
    """The network of `nets.py` as an ONNX file in the current folder."""
    assert shell is not None
    images = torch.from_numpy(np.load("x.npy"))
    return export(small().eval(), images, Path("model.onnx"), "torchscript")


@pytest.mark.usefixtures("file")
def test_a_file_is_inspected(shell: Shell) -> None:
    assert shell("inspect", "model.onnx", "--shape", "3,8,8", "--json") == 0, shell.err
    assert [space["size"] for space in json.loads(shell.out)["spaces"]] == [16, 24, 4]


def test_a_file_is_compressed(file: Path, shell: Shell) -> None:
    command = ("compress", "model.onnx", "--data", "x.npy", "--flops", "0.6", "--out", "half")
    assert shell(*command) == 0, shell.err
    assert sorted(path.name for path in Path("half").iterdir()) == [
        "model.onnx", "plan.json", "report.html", "weights.safetensors",
    ]  # fmt: skip
    assert "ONNX Runtime, " in shell.out
    assert "relative to the outputs of the original file" in shell.out
    plan = json.loads(Path("half/plan.json").read_text())
    low, high = plan["onnx"]["quartiles"]
    assert 0 < low <= plan["onnx"]["time"] <= high
    page = Path("half/report.html").read_text()
    assert "It runs faster than the original (model.onnx in ONNX Runtime)." in page
    images = torch.from_numpy(np.load("x.npy"))
    loaded = interpress.load("half", interpress.read_onnx(file))
    served = run(Path("half/model.onnx"), images)
    assert difference(served, outputs(loaded, images)) < 1e-5

    assert shell(*command) == 2
    assert "--force" in shell.err
    assert shell(*command, "--force", "--json") == 0, shell.err
    said = json.loads(shell.out)
    assert said["onnx"]["error"] < 1e-5
    assert said["onnx"]["bytes"][1] < said["onnx"]["bytes"][0] == file.stat().st_size

    evaluate = ("evaluate", "model.onnx", "--compressed", "half", "--data", "x.npy", "--json")
    assert shell(*evaluate) == 0, shell.err
    assert 0.5 < json.loads(shell.out)["agreement"] <= 1


@pytest.mark.usefixtures("file")
def test_what_does_not_go_with_a_file(shell: Shell) -> None:
    command = ("compress", "model.onnx", "--data", "x.npy", "--flops", "0.6", "--out", "half")
    assert shell(*command, "--weights", "w.safetensors") == 2
    assert "with its weights; leave them out" in shell.err
    assert shell(*command, "--model-arg", "classes=3") == 2
    assert "leave them out" in shell.err
    assert not Path("half").exists()


def test_a_damaged_file_and_a_quantised_one(file: Path, shell: Shell) -> None:
    command = ("compress", "model.onnx", "--data", "x.npy", "--flops", "0.6", "--out", "half")
    model = onnx.load(file)
    model.graph.node[0].op_type = "QLinearConv"
    onnx.save(model, file)
    assert shell(*command) == 2
    assert "is quantised (1 QLinearConv); compress the floating-point file" in shell.err
    file.write_bytes(file.read_bytes()[:200])
    assert shell(*command) == 2
    assert "cannot be read as ONNX" in shell.err
    file.unlink()
    assert shell(*command) == 2
    assert "model.onnx is not a file; give the path of an ONNX file" in shell.err

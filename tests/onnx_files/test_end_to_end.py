"""Exported networks, compressed from the file: as from source, and in ONNX Runtime."""

from itertools import product
from pathlib import Path

import onnx
import pytest
import torch
from tests.digits import Trained
from tests.onnx_files.exported import (
    EXPORTERS,
    described,
    difference,
    export,
    outputs,
    run,
)
from tests.zoo.members import ZOO
from torch import Tensor

import interpress
from interpress import Result


@pytest.fixture(scope="module")
def from_source(digits: Trained) -> Result:
    return interpress.compress(digits.model, digits.calibration, flops=0.5)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("fixed", [False, True], ids=["any batch", "one example"])
def test_a_file_gives_the_widths_and_outputs_of_the_source(
    exporter: str, fixed: bool, digits: Trained, from_source: Result, tmp_path: Path
) -> None:
    file = export(digits.model, digits.test, tmp_path / "digits.onnx", exporter, fixed=fixed)
    proto = onnx.load(file)
    onnx.helper.set_model_props(proto, {"trained by": "us", "version": "3"})
    proto.doc_string = "digits"
    onnx.save(proto, file)

    result = interpress.compress(file, digits.calibration, flops=0.5)
    widths = [(space.before, space.after) for space in from_source.plan]
    assert [(space.before, space.after) for space in result.plan] == widths
    assert result.flops <= 0.5

    smaller = tmp_path / "smaller.onnx"
    result.save_onnx(smaller)
    written = onnx.load(smaller)
    onnx.checker.check_model(written, full_check=True)
    assert described(written) == described(proto)
    assert smaller.stat().st_size < file.stat().st_size

    served = run(smaller, digits.test[:40], fixed=fixed)
    assert difference(served, outputs(result.model, digits.test[:40])) < 1e-5
    assert difference(served, outputs(from_source.model, digits.test[:40])) < 1e-3
    assert result.onnx is not None
    assert result.onnx.error < 1e-5
    assert result.onnx.bytes[1] < result.onnx.bytes[0]


def from_zoo(name: str, count: int) -> tuple[torch.nn.Module, Tensor]:
    """Return a member of the zoo in single precision, and inputs for it."""
    torch.manual_seed(0)
    member = ZOO[name]
    model = member.build().float().eval()
    return model, torch.randn(count, *member.example().shape[1:])


FAST = [
    ("c2f_slice", "torchscript", 0.6), ("vit", "torchscript", 0.6), ("vgg", "torchscript", 0.5),
    ("vit", "dynamo", 0.7),
]  # fmt: skip
SLOW = ["yolo", "mobilenet_v3", "resnet50", "densenet", "unet", "swin", "mixer", "detr", "convnext",
        "squeezenet", "efficientnet", "inception", "espcn", "c2f_split",
        "shufflenet_v2"]  # fmt: skip
NOT_READ = {("detr", "dynamo"), ("swin", "torchscript"), ("densenet", "torchscript")}
"""torch.export fixes the batch of detr at two, and the windows of swin are cut for one example. Of
densenet, TorchScript writes equal statistics once, which ties some of its untrained layers."""
WITHOUT_HEADS = {"vit", "swin", "detr"}
"""Files write attention as products, of which heads are not removed."""


@pytest.mark.parametrize(("name", "exporter", "flops"), FAST)
def test_structures(name: str, exporter: str, flops: float, tmp_path: Path) -> None:
    check_member(name, exporter, flops, tmp_path, fixed=exporter == "torchscript")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exporter"), [pair for pair in product(SLOW, EXPORTERS) if pair not in NOT_READ]
)
def test_more_structures(name: str, exporter: str, tmp_path: Path) -> None:
    check_member(name, exporter, 0.6, tmp_path, fixed=exporter == "torchscript")


def check_member(name: str, exporter: str, flops: float, folder: Path, *, fixed: bool) -> None:
    model, data = from_zoo(name, 40)
    file = export(model, data, folder / f"{name}.onnx", exporter, fixed=fixed)
    result = interpress.compress(file, data, flops=flops)
    assert flops - 0.15 < result.flops <= flops
    if name not in WITHOUT_HEADS:
        both = [interpress.find_spaces(network, data[:2]) for network in (model, result.original)]
        sizes = [sorted(space.size for space in spaces.shrinkable) for spaces in both]
        assert sizes[0] == sizes[1]
    result.save_onnx(folder / "smaller.onnx")
    served = run(folder / "smaller.onnx", data[:3], fixed=fixed)
    assert difference(served, outputs(result.model, data[:3])) < 1e-5
    assert difference(run(file, data[:3], fixed=fixed), outputs(model, data[:3])) < 1e-5

"""The benchmark of ONNX files, and the detector that comes with the package nudenet."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from benchmarks import __main__ as benchmarks
from benchmarks.boxes import compare_boxes, overlaps
from benchmarks.experiment import RESULTS, ExperimentError
from benchmarks.onnx_files import markdown, prepared
from tests.cli.conftest import picture
from tests.onnx_files.exported import difference, outputs, run

import interpress

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_the_benchmark_writes_its_table(tmp_path: Path) -> None:
    words = ["onnx", "--quick", "--flops", "0.7", "--runs", "5", "--out", str(tmp_path)]
    benchmarks.main(words)
    report = json.loads((tmp_path / "onnx-cpu.json").read_text())
    assert [(row["asked"], row["round_to"]) for row in report["rows"]] == [(0.7, 1), (0.7, 8)]
    for row in report["rows"]:
        assert row["flops"] <= 0.7
        assert row["rounding"] < 1e-5
        assert 0 < row["error"] < 0.2
        assert row["bytes"] < report["bytes"]
        assert row["time"] > 0
    assert report["judged"] == report["calibrated"] == 20
    assert report["interpress"] == interpress.__version__
    assert (tmp_path / "onnx-cpu.md").read_text() == markdown(report)


@pytest.mark.parametrize("words", [["onnx"], ["onnx", "model.onnx"], ["onnx", "--data", "here"]])
def test_a_file_and_data_are_needed(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks.main(words)


def test_a_folder_without_photographs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"has no \*.parquet"):
        benchmarks.main(["onnx", "model.onnx", "--data", str(tmp_path)])


def test_photographs_are_prepared_as_nudenet_does() -> None:
    image = picture(0, 8)
    square = prepared(image, 8, bgr=False)
    assert square.shape == (3, 8, 8)
    assert 0 <= square.min() < square.max() <= 1
    assert torch.equal(prepared(image, 8, bgr=True), square.flip(0))
    assert prepared(image, 20, bgr=False).shape == (3, 20, 20)


def test_boxes_are_compared() -> None:
    before = np.zeros((1, 6, 4))
    before[0, :4] = [[10, 10, 10, 10], [10, 10, 10, 10], [4, 4, 4, 4], [2, 2, 2, 2]]
    before[0, 4:] = [[0.9, 0.8, 0.1, 0.7], [0.0, 0.1, 0.1, 0.1]]
    after = before.copy()
    after[0, 0] += [0, 2, 0, 0]  # half of the second box
    after[0, 4:, 3] = 0.1, 0.7  # the fourth has another class
    found = compare_boxes(before, after)
    assert found is not None
    assert (found["before"], found["after"], found["both"]) == (3, 3, 2)
    assert found["overlap"] == pytest.approx((1 + 1 / 3) / 2)
    assert overlaps(np.array([[0, 0, 2, 2.0]]), np.array([[5, 5, 2, 2.0]])).tolist() == [0.0]
    assert compare_boxes(np.zeros((3, 10)), np.zeros((3, 10))) is None


def test_the_docs_show_the_figures_of_the_result_file() -> None:
    report = json.loads((RESULTS / "onnx-cpu.json").read_text())
    text = (DOCS / "onnx-files.md").read_text()
    assert f"`{report['command']}`" in text
    table = markdown(report).split("\n\n")[-1]
    assert table in text
    assert (RESULTS / "onnx-cpu.md").read_text() == markdown(report)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("nudenet") is None,
    reason="nudenet is not installed: pip install --no-deps nudenet",
)
def test_the_detector_of_nudenet(tmp_path: Path) -> None:
    """Pictures of noise calibrate, so only that the file is right is tested, not how good it is."""
    spec = importlib.util.find_spec("nudenet")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).with_name("320n.onnx")
    images = torch.rand(12, 3, 320, 320, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.avg_pool2d(images, 9, 1, 4)
    network = interpress.read_onnx(file)
    spaces = interpress.find_spaces(network, images[:2])
    assert spaces.cost.shrinkable_share() > 0.95
    result = interpress.compress(
        file, images, flops=0.7, method=interpress.Method(allocation="marginal", refit=False)
    )
    assert result.flops <= 0.7
    result.save_onnx(tmp_path / "smaller.onnx")
    served = run(tmp_path / "smaller.onnx", images[:2])
    assert difference(served, outputs(result.model, images[:2])) < 1e-5
    before, after = (onnx.load(path) for path in (file, tmp_path / "smaller.onnx"))
    assert after.graph.input == before.graph.input
    assert after.graph.output == before.graph.output
    assert {p.key: p.value for p in after.metadata_props} == {
        p.key: p.value for p in before.metadata_props
    }
    smaller = images[:1, :, :256, :288]  # the sizes of images stay free
    assert run(tmp_path / "smaller.onnx", smaller)[0].shape == run(file, smaller)[0].shape

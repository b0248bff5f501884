"""The benchmarks run at the smallest size and write the tables that the documents show."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks import coverage, decomposition, linalg, networks, scale
from benchmarks.experiment import RESULTS
from benchmarks.page import ROOT
from benchmarks.preserve import command, tables
from safetensors.torch import save_file
from torch import nn

import interpress
from interpress.calibration.room import GIB, make_room
from interpress.calibration.streamed import blocks_of


def test_the_linalg_benchmark_writes_its_tables(tmp_path: Path) -> None:
    linalg.main(["--sizes", "32", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "linalg-cpu.json").read_text())
    assert [row["n"] for row in report["times"]] == [32]
    assert len(report["quality"]) == 11
    assert {row["input"] for row in report["decompositions"]} == set(decomposition.INPUTS)
    assert all(row["spectral"] < 1.05 for row in report["decompositions"])
    text = (tmp_path / "linalg-cpu.md").read_text()
    assert "| 32 |" in text
    assert all(row["family"].replace("_", " ") in text for row in report["quality"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linalg-cpu.json", "linalg-cpu.md"]


@pytest.mark.parametrize(
    ("device", "n", "label"), [("cpu", 2048, "CPU, n = 2048"), ("cuda", 4096, "GPU, n = 4096")]
)
def test_docs_show_the_ratios_of_the_linalg_result_files(device: str, n: int, label: str) -> None:
    report = json.loads((RESULTS / f"linalg-{device}.json").read_text())
    row = next(row for row in report["times"] if row["n"] == n)
    factor, rows = (row[f"scipy_{start}"] / row[f"ours_{start}"] for start in ("factor", "rows"))
    text = (ROOT / "docs" / "linalg.md").read_text()
    assert f"| {label} | {factor:.1f} | {rows:.1f} |" in text


@pytest.mark.parametrize("n", [256, 512, 1024, 2048, 4096])
def test_docs_show_the_ratios_of_one_decomposition(n: int) -> None:
    report = json.loads((RESULTS / "linalg-cpu.json").read_text())
    ratios = {
        (row["input"], row["threads"]): f"{row['scipy'] / row['ours']:.1f}"
        for row in report["decompositions"]
        if (row["family"], row["n"], row["k"]) == ("gaussian", n, n // 2)
    }
    cells = [ratios[title, threads] for title in decomposition.INPUTS for threads in (1, 2)]
    assert f"| {n} | {' | '.join(cells)} |" in (ROOT / "docs" / "linalg.md").read_text()


@pytest.mark.parametrize("norm", ["spectral", "frobenius"])
def test_errors_of_one_decomposition_are_at_most_five_percent_above_pivoted_qr(norm: str) -> None:
    report = json.loads((RESULTS / "linalg-cpu.json").read_text())
    assert all(row[norm] <= 1.05 for row in report["decompositions"])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("norm", ["spectral", "frobenius"])
def test_errors_of_the_linalg_result_files_equal_those_of_scipy(device: str, norm: str) -> None:
    report = json.loads((RESULTS / f"linalg-{device}.json").read_text())
    pairs = [(row["ours"][norm], row["scipy_qr"][norm]) for row in report["quality"]]
    measured = [(ours, scipys) for ours, scipys in pairs if ours is not None]
    assert measured
    assert all(ours <= 1.001 * scipys for ours, scipys in measured)


def test_the_coverage_benchmark_writes_its_table(tmp_path: Path) -> None:
    coverage.main(["--only", "tiny", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "coverage-ours.json").read_text())
    (row,) = report["networks"]
    assert row["network"] == "tiny"
    assert row["ours"]["proved"]
    assert row["ours"]["share"] == 1.0
    assert "| tiny | " in (tmp_path / "coverage-ours.md").read_text()


def test_a_network_without_a_result_in_time_is_reported() -> None:
    row = coverage.isolated("interpress", ("tiny", "ours", "cpu"), limit=0.01, threads=1)
    assert row == {"failed": "no result in 0 s"}


def test_an_error_in_the_process_of_a_network_is_reported() -> None:
    row = coverage.isolated("interpress", ("nonsense", "ours", "cpu"), limit=60, threads=1)
    assert "KeyError" in row["failed"]


@pytest.mark.parametrize("source", ["ours", "torchvision"])
def test_every_network_of_the_coverage_result_files_is_verified(source: str) -> None:
    report = json.loads((RESULTS / f"coverage-{source}.json").read_text())
    assert report["networks"]
    assert all(row["ours"]["proved"] for row in report["networks"])


@pytest.fixture
def small_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with random images and an untrained network named "tiny"."""
    torch.manual_seed(0)

    def tiny() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 48, 3, 2), nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 64, 3, 4),
            nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip

    monkeypatch.setitem(networks.NETWORKS, "tiny", tiny)
    save_file(tiny().state_dict(), tmp_path / "tiny-cifar10.safetensors")
    for part in ("test", "train"):
        images = torch.randint(256, (150, 3, 32, 32), dtype=torch.uint8)
        labels = torch.randint(10, (150,))
        save_file({"images": images, "labels": labels}, tmp_path / f"{part}.safetensors")
    return tmp_path


@pytest.mark.parametrize("measurement", ["agreement", "parts", "cost", "loop", "latency"])
def test_a_measurement_of_preserve_writes_its_table(measurement: str, small_cifar: Path) -> None:
    out = small_cifar / "out"
    command.main([
        measurement, "--data", str(small_cifar), "--weights", str(small_cifar),
        "--networks", "tiny", "--images", "80", "--seeds", "1", "--flops", "0.6",
        "--repeats", "1", "--out", str(out),
    ])  # fmt: skip
    report = json.loads((out / f"preserve-{measurement}-cpu.json").read_text())
    text = (out / f"preserve-{measurement}-cpu.md").read_text()
    assert text == tables.markdown(measurement, report)
    assert "tiny" in text
    assert report["rows"]
    assert all(row.get("flops", 0) <= 0.6 for row in report["rows"])


def test_the_page_on_large_models_shows_the_calculated_needs() -> None:
    assert scale.needs_table() in (ROOT / "docs" / "large-models.md").read_text(encoding="utf-8")


def test_calculated_needs_are_those_that_a_run_announces() -> None:
    shape, tokens = scale.SHAPES["tiny"], 32
    model = scale.build("tiny", shape.layers, "cpu", "float32")
    spaces = interpress.find_spaces(model, torch.zeros(2, tokens, dtype=torch.long))
    room = make_room(spaces, blocks_of(spaces), 80, None)
    needs = scale.needs(shape, 100, tokens, itemsize=4)
    assert needs["statistics"] * GIB == room.statistics
    assert needs["between"] * GIB == pytest.approx(room.between, rel=0.5)
    assert needs["values"] * GIB == pytest.approx(room.values, rel=0.6)
    assert needs["model"] * GIB == pytest.approx(spaces.program.weight_bytes, rel=0.1)


def test_whole_shapes_are_calculated_from_fewer_layers() -> None:
    row = {"shape": "70B", "step": "find", "sequences": 1, "tokens": 1, "memory_gib": 1.0}
    rows = [row | {"layers": n, "seconds": 10.0 + n, "parameters": n} for n in (2, 4)]
    (whole,) = scale._calculated(rows)
    assert (whole["layers"], whole["seconds"], whole["parameters"]) == (80, 90, 80)
    assert whole["calculated"]


def test_the_scale_benchmark_measures_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scale.json"
    words = ["tiny", "--layers", "2", "--steps", "find", "--dtype", "float32", "--out", str(out)]
    for _ in range(2):  # the second time nothing is measured
        scale.main(words)
    (row,) = json.loads(out.read_text())
    assert row["spaces"] > 0
    assert "| tiny | 2 |" in capsys.readouterr().out

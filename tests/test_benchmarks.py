"""The benchmarks run and write what they say, at the smallest size."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks import coverage, linalg, networks, preserve
from safetensors.torch import save_file
from torch import nn


def test_linalg_benchmark_writes_its_table(tmp_path: Path) -> None:
    linalg.main(["--sizes", "32", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "linalg-cpu.json").read_text())
    assert [row["n"] for row in report["times"]] == [32]
    assert len(report["quality"]) == 11
    table = (tmp_path / "linalg-cpu.md").read_text()
    assert "| 32 |" in table
    assert all(row["family"].replace("_", " ") in table for row in report["quality"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linalg-cpu.json", "linalg-cpu.md"]


def test_the_figures_in_the_documents_are_those_of_the_result_files() -> None:
    page = (linalg.RESULTS.parents[1] / "docs" / "linalg.md").read_text()
    for device, n, label in (("cpu", 2048, "CPU, n = 2048"), ("cuda", 4096, "GPU, n = 4096")):
        report = json.loads((linalg.RESULTS / f"linalg-{device}.json").read_text())
        row = next(row for row in report["times"] if row["n"] == n)
        factor, rows = (row[f"scipy_{what}"] / row[f"ours_{what}"] for what in ("factor", "rows"))
        assert f"| {label} | {factor:.1f} | {rows:.1f} |" in page
        for judged in report["quality"]:
            ours, theirs = judged["ours"], judged["scipy_qr"]
            for norm in ("spectral", "frobenius"):
                assert ours[norm] is None or ours[norm] <= 1.001 * theirs[norm]


def test_coverage_benchmark_writes_its_table(tmp_path: Path) -> None:
    coverage.main(["--only", "tiny", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "coverage-ours.json").read_text())
    (row,) = report["networks"]
    assert row["network"] == "tiny"
    assert row["ours"]["proved"]
    assert row["ours"]["share"] == 1.0
    assert "| tiny | " in (tmp_path / "coverage-ours.md").read_text()


def test_a_network_that_takes_too_long_is_stopped_and_said_so() -> None:
    row = coverage.isolated("ours", ("tiny", "ours", "cpu"), limit=0.01, threads=1)
    assert row == {"failed": "no result in 0 s"}
    failed = coverage.isolated("ours", ("nonsense", "ours", "cpu"), limit=60, threads=1)
    assert "KeyError" in failed["failed"]


def test_the_coverage_page_shows_the_result_files() -> None:
    page = (coverage.RESULTS.parents[1] / "docs" / "coverage.md").read_text()
    for source in ("ours", "torchvision"):
        table = (coverage.RESULTS / f"coverage-{source}.md").read_text()
        assert table in page, f"docs/coverage.md does not show coverage-{source}.md as it is"
        report = json.loads((coverage.RESULTS / f"coverage-{source}.json").read_text())
        assert table == coverage.markdown(report)
        assert all(row["ours"]["proved"] for row in report["networks"])


def test_preserve_benchmark_writes_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On random pictures and a small untrained network: every part runs and is written down."""
    torch.manual_seed(0)

    def tiny() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 48, 3, 2), nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 64, 3, 4),
            nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip

    monkeypatch.setitem(networks.NETWORKS, "tiny", tiny)
    save_file(tiny().state_dict(), tmp_path / "tiny-cifar10.safetensors")
    for part in ("test", "train"):
        pictures = torch.randint(256, (150, 3, 32, 32), dtype=torch.uint8)
        labels = torch.randint(10, (150,))
        save_file({"images": pictures, "labels": labels}, tmp_path / f"{part}.safetensors")
    common = ["--data", str(tmp_path), "--weights", str(tmp_path), "--networks", "tiny",
              "--images", "80", "--seeds", "1", "--flops", "0.6", "--repeats", "1",
              "--out", str(tmp_path / "out")]  # fmt: skip
    for part in ("agreement", "parts", "cost", "loop", "latency"):
        preserve.main([part, *common])
        report = json.loads((tmp_path / "out" / f"preserve-{part}-cpu.json").read_text())
        table = (tmp_path / "out" / f"preserve-{part}-cpu.md").read_text()
        assert table == preserve.markdown(part, report)
        assert "tiny" in table
        assert all(row.get("flops", 0) <= 0.6 for row in report["rows"])


def test_the_page_shows_the_result_files_of_preserve() -> None:
    page = (preserve.RESULTS.parents[1] / "docs" / "compress.md").read_text()
    tables = sorted(preserve.RESULTS.glob("preserve-*.md"))
    assert tables
    for path in tables:
        table = path.read_text()
        assert table in page, f"docs/compress.md does not show {path.name} as it is"
        report = json.loads(path.with_suffix(".json").read_text())
        assert table == preserve.markdown(path.stem.split("-")[1], report)

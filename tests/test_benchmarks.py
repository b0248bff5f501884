"""The benchmarks run and write what they say, at the smallest size."""

import json
from pathlib import Path

from benchmarks import linalg


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

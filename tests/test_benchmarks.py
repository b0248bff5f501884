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

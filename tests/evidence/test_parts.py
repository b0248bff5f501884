"""Parts of steps that run side by side, and the one result file that they become."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from benchmarks import parts, plan
from benchmarks.experiment import Report
from benchmarks.parts import Part, parts_of, run_side_by_side, unite
from benchmarks.plan import STEPS


def options(folder: Path, **given: Any) -> Namespace:
    usual = {"data": folder, "weights": folder, "device": "cpu", "state": folder / "state.json"}
    return Namespace(**{**usual, **given})


def test_an_experiment_has_a_part_per_job(tmp_path: Path) -> None:
    made = parts_of("baselines", ("baselines", "--data", "d"), options(tmp_path))
    assert len(made) == 9
    assert made[0].command[:5] == ("baselines", "--data", "d", "--only", "vgg16/0")
    assert len({part.folder for part in made}) == 9


def test_a_measurement_has_a_part_per_variant_network_and_seed(tmp_path: Path) -> None:
    (step,) = (step for step in STEPS if step.result == "preserve-distill-cuda")
    made = parts_of(step.result, step.words, options(tmp_path), step.variants)
    assert len({part.folder for part in made}) == len(made) == 9 + 9 + 3 + 1 + 1 + 3
    first = made[0].command
    assert first[:4] == ("preserve", "distill", "--flops", "0.5")
    assert first[4:] == (
        "--networks", "vgg16", "--first-seed", "0", "--seeds", "1", "--out", str(made[0].folder)
    )  # fmt: skip


def test_other_steps_have_one_part(tmp_path: Path) -> None:
    (part,) = parts_of("coverage-ours", ("coverage",), options(tmp_path))
    assert part.command == ("coverage", "--out", str(part.folder))


def scripted(folder: Path, script: str) -> Part:
    return Part("step", ("-c", script), folder)


def run_scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let parts run Python code instead of benchmarks; return the folders in order of starting."""
    started = []

    def start(part: Part, environment: dict[str, str]) -> Popen[bytes]:
        started.append(part.folder.name)
        part.folder.mkdir(parents=True, exist_ok=True)
        return Popen([sys.executable, *part.command], cwd=part.folder, env=environment)

    monkeypatch.setattr(parts, "_start", start)
    return started


def test_parts_that_are_done_do_not_run_again_and_failures_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = run_scripts(monkeypatch)
    good = scripted(tmp_path / "good", "open('r.json', 'w').write('{}')")
    bad = scripted(tmp_path / "bad", "open('r.json', 'w').write('{}'); raise SystemExit(3)")
    assert run_side_by_side([good, bad], 2, 60) == [bad]
    assert good.file == tmp_path / "good" / "r.json"
    assert bad.file is None
    assert run_side_by_side([good, bad], 1, 60) == [bad]
    assert started == ["good", "bad", "bad"]


def test_a_deadline_stops_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = run_scripts(monkeypatch)
    script = "import time; open('r.json', 'w').write('{}'); time.sleep(60)"
    slow = [scripted(tmp_path / name, script) for name in ("one", "two")]
    assert run_side_by_side(slow, 1, 1.0) == []
    assert started == ["one"]
    assert slow[0].file is None


def test_parts_of_an_experiment_become_one_report(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = {
            "command": f"python -m benchmarks circle --only {number}", "interpress": "0",
            "date": "d", "machine": "m", "torch": "t", "seconds": 1.0,
        }  # fmt: skip
        about = {"experiment": "circle", "options": {}, "runs": [run]}
        Report(about, {f"{number}": []}).save(folder / "circle.json")
        (folder / "done").touch()
        made.append(Part("circle", ("circle",), folder))
    module = type("Module", (), {"tables": staticmethod(lambda report: "table")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "experiments", lambda: {"circle": module})
        target = unite(made, tmp_path / "out")
    united = Report.load(target)
    assert list(united.rows) == ["0", "1"]
    assert [run["seconds"] for run in united.about["runs"]] == [1.0, 1.0]
    assert "table" in target.with_suffix(".md").read_text()


def test_parts_of_a_measurement_become_one_table(tmp_path: Path) -> None:
    made = []
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        row = {
            "network": "digits", "seed": seed, "calibration": "test", "images": 300,
            "method": "preserve", "asked": 0.5, "flops": 0.5, "minutes": 1.0, "before": 90.0 + seed,
            "agreement": 92.0 + seed, "steps": 7, "kept": True, "loss": [1.0, 0.5],
        }  # fmt: skip
        report = {
            "interpress": "0", "code": "c", "machine": "m", "data": "digits", "date": "d",
            "torch": "t", "images": 300, "rows": [row],
        }  # fmt: skip
        (folder / "preserve-distill-cpu.json").write_text(json.dumps(report))
        (folder / "done").touch()
        made.append(Part("preserve-distill-cpu", ("preserve", "distill"), folder))
    target = unite(made, tmp_path / "out")
    assert len(json.loads(target.read_text())["rows"]) == 2
    assert "90.50" in target.with_suffix(".md").read_text()


def test_what_measures_run_times_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[str] = []
    together: list[str] = []

    def run_parts(made: Any, processes: int, seconds: float) -> list[Part]:
        together.extend(part.step for part in made)
        return []

    def run(self: plan.Plan, step: plan.Step, seconds: float) -> bool:
        alone.append(step.result)
        return True

    monkeypatch.setattr(plan, "run_side_by_side", run_parts)
    monkeypatch.setattr(plan.Plan, "run", run)
    steps = [
        plan.Step("linalg-cpu", ("linalg",), {"cpu": 1}),
        plan.Step("circle", ("circle",), {"cpu": 1}),
    ]
    plan.main(["--processes", "3", "--state", str(tmp_path / "s.json")], steps)
    assert alone == ["linalg-cpu"]
    assert set(together) == {"circle"}

"""The plan of all benchmarks: what is done, what fits, what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import TimeoutExpired

import pytest
from benchmarks import plan
from benchmarks.__main__ import COMMANDS
from benchmarks.experiment import RESULTS, experiments
from benchmarks.plan import STEPS, Step


def test_every_result_file_has_a_step() -> None:
    written = {path.stem for path in RESULTS.glob("*.json")}
    assert written <= {step.result for step in STEPS}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.result)
def test_every_step_is_a_command(step: Step) -> None:
    assert step.words[0] in {*COMMANDS, *experiments()}


class Runs:
    """Stands in for subprocesses: records commands, and takes a given time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: float = 0.0, code: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.clock, self.takes, self.code = 0.0, takes, code
        self.stopped: list[int] = []
        monkeypatch.setattr(plan, "Popen", self.start)
        monkeypatch.setattr(plan.time, "monotonic", lambda: self.clock)

    def start(self, words: list[str]) -> Runs:
        self.commands.append(words[3:])
        return self

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None and timeout < self.takes and not self.stopped:
            self.clock += timeout
            raise TimeoutExpired("benchmarks", timeout)
        self.clock += self.takes
        return self.code

    def send_signal(self, number: int) -> None:
        self.stopped.append(number)


def steps() -> list[Step]:
    return [
        Step("first", ("circle",), {"cpu": 10}),
        Step("second", ("linalg",), {"cpu": 10}),
        Step("other-device", ("linalg",), {"cuda": 10}),
        Step("without-data", ("fashion",), {"cpu": 10}, ("data",)),
    ]


def test_steps_run_once_per_code_on_the_devices_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, state = Runs(monkeypatch, takes=120.0), tmp_path / "state.json"
    plan.main(["--state", str(state)], steps())
    assert runs.commands == [["circle"], ["linalg"]]
    assert "needs --data" in capsys.readouterr().err
    assert json.loads(state.read_text())["first"]["minutes"] == 2.0
    plan.main(["--state", str(state)], steps())
    assert len(runs.commands) == 2
    assert "0 steps to run" in capsys.readouterr().err

    monkeypatch.setattr(plan, "code_hash", lambda result: "another")
    plan.main(["--state", str(state), "--list"], steps())
    assert "2 steps to run, about 4 minutes" in capsys.readouterr().err
    assert len(runs.commands) == 2


def test_a_budget_stops_an_experiment_and_does_not_begin_what_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, state = Runs(monkeypatch, takes=400.0), tmp_path / "state.json"
    plan.main(["--state", str(state), "--budget-minutes", "5"], steps())
    assert runs.commands == [["circle"]]  # an experiment goes on next time; linalg would not fit
    assert len(runs.stopped) == 1
    assert not state.exists()


def test_a_failed_step_is_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, code=1)
    words = ["--state", str(tmp_path / "state.json")]
    with pytest.raises(SystemExit, match="failed: first, second"):
        plan.main(words, steps())
    with pytest.raises(SystemExit, match="failed"):
        plan.main(words, steps())
    assert len(runs.commands) == 4


def test_data_and_device_reach_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    plan.main(["--data", "d", "--state", str(tmp_path / "s.json")], steps())
    assert ["fashion", "--data", "d"] in runs.commands


def test_options_and_packages_that_a_step_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(monkeypatch)
    words = ("language", "{language_model}", "--judge", "{data}/text.txt")
    made = [
        Step("language", words, {"cpu": 1}, ("data", "language_model")),
        Step("pitch", ("pitch",), {"cpu": 1}, files_of=("no_such_package",)),
    ]
    plan.main(["--data", "d", "--state", str(tmp_path / "s.json")], made)
    shown = capsys.readouterr().err
    assert "needs --language-model" in shown
    assert "needs no_such_package" in shown
    assert not runs.commands
    options = ["--data", "d", "--language-model", "m.gguf", "--state", str(tmp_path / "s.json")]
    plan.main(options, made)
    assert runs.commands == [["language", "m.gguf", "--judge", "d/text.txt"]]


def test_a_budget_must_be_positive() -> None:
    with pytest.raises(SystemExit):
        plan.main(["--budget-minutes", "0"], steps())


def test_some_steps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    plan.main(["--steps", "second", "--state", str(tmp_path / "s.json")], steps())
    assert runs.commands == [["linalg"]]
    with pytest.raises(SystemExit, match="--steps third: give some of first, second"):
        plan.main(["--steps", "third", "--state", str(tmp_path / "s.json")], steps())

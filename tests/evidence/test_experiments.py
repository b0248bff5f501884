"""Every experiment runs with --quick, continues after an interruption, and is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import runner
from benchmarks.__main__ import main
from benchmarks.experiment import (
    RESULTS,
    ExperimentError,
    Job,
    Report,
    Row,
    Settings,
    experiments,
)

NAMES = list(experiments())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick")


@pytest.fixture(autouse=True)
def no_installed_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the digits, even if Debian's Fashion-MNIST is installed."""
    monkeypatch.setattr("benchmarks.data.fashion.DEBIAN_FOLDER", Path("nowhere"))


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs_on_digits(
    name: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([name, "--quick", "--out", str(out)])
    path = out / f"{name}.json"
    report = Report.load(path)
    assert report.all_rows
    module = experiments()[name]
    written = (out / f"{name}.md").read_text()
    assert written == runner.markdown(module, report)
    assert f"python -m benchmarks {name} --quick" in written
    assert capsys.readouterr().out.strip()
    plots = list(out.glob(f"{name}*.svg"))
    assert bool(plots) == hasattr(module, "draw")
    assert all("<svg" in plot.read_text()[:2000] for plot in plots)

    before = path.read_bytes()
    main([name, "--quick", "--out", str(out)])  # all jobs have rows, so none runs again
    assert path.read_bytes() == before
    assert not list(out.glob("*.part"))


def test_an_interrupted_run_continues_with_the_jobs_that_are_left(tmp_path: Path) -> None:
    started: list[str] = []

    class Module:
        @staticmethod
        def jobs(settings: Settings) -> list[Job]:
            def work(key: str) -> list[Row]:
                started.append(key)
                if started == ["a", "b"]:
                    raise KeyboardInterrupt
                return [{"key": key}]

            return [Job(key, lambda key=key: work(key)) for key in ("a", "b", "c")]

        @staticmethod
        def tables(report: Report) -> str:
            return ", ".join(row["key"] for row in report.all_rows)

    with pytest.raises(KeyboardInterrupt):
        runner.run("toy", Module, Settings(quick=True), tmp_path, False)  # type: ignore[arg-type]
    assert list(Report.load(tmp_path / "toy.json").rows) == ["a"]
    report = runner.run("toy", Module, Settings(quick=True), tmp_path, False)  # type: ignore[arg-type]
    assert started == ["a", "b", "b", "c"]
    assert Module.tables(report) == "a, b, c"
    with pytest.raises(ExperimentError, match="start over with --fresh"):
        runner.run("toy", Module, Settings(), tmp_path, False)  # type: ignore[arg-type]
    runner.run("toy", Module, Settings(), tmp_path, True)  # type: ignore[arg-type]
    assert started[4:] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["baselines"], "--data is missing: give the folder with train.parquet"),
        (["fashion"], "--data is missing: give the folder with Fashion-MNIST"),
        (["imagenet"], "--data is missing; give the folder with ImageNet"),
        (["atom3d"], "--data is missing; give the folder with ATOM3D"),
        (["efficientnet"], "--data is missing; give the folder with imagenet-samples"),
        (["systems"], "--data is missing: give the folder with train.parquet"),
        (["atom3d", "--data", "nowhere"], "nowhere is not a folder"),
        (["fashion", "--data", "."], "has no train-images-idx3-ubyte.gz"),
    ],
)
def test_missing_data_raise_an_error_that_names_them(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--out", "out"])
    assert message in str(caught.value)
    assert not list((tmp_path / "out").glob("*.json"))


def test_redraw_writes_the_same_tables_and_plots_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = RESULTS / "removed.json"
    (tmp_path / "removed.json").write_bytes(stored.read_bytes())
    main(["removed", "--redraw", "--out", str(tmp_path)])
    for name in ("removed.md", "removed.svg"):
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()
    assert "points of accuracy" in capsys.readouterr().out


def test_help_lists_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if (RESULTS / f"{name}.json").is_file()])
def test_a_result_file_names_its_full_runs(name: str) -> None:
    about = json.loads((RESULTS / f"{name}.json").read_text())["about"]
    assert about["experiment"] == name
    assert not about["options"]["quick"]
    assert about["runs"]
    assert all(run["command"] and run["machine"] for run in about["runs"])


def test_all_skips_experiments_without_data_and_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(name: str, *_: object) -> Report:
        if name in ("atom3d", "imagenet"):
            raise ExperimentError("no data")
        ran.append(name)
        path = RESULTS / f"{name}.json"
        return Report.load(path) if path.is_file() else Report({}, {})

    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(ExperimentError, match="atom3d: no data\nimagenet: no data"):
        main(["all", "--quick", "--out", str(tmp_path)])
    assert set(ran) == set(NAMES) - {"atom3d", "imagenet"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["circle", "--quick", "--only", "nothing"], "no job of circle has 'nothing'"),
        (["circle", "--redraw"], "does not exist; run circle first"),
        (["circle", "--quick", "--seeds", "0"], "--seeds 0: give at least 1"),
        (["circle", "--quick", "--device", "abacus"], "--device abacus"),
    ],
)
def test_wrong_options_raise_an_error_that_names_them(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--out", str(tmp_path)])
    assert message in f"{caught.value} {capsys.readouterr().err}"


def test_a_part_of_an_experiment_has_tables_but_no_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["removed", "--quick", "--only", "iterative", "--out", str(tmp_path)])
    assert "no plots of removed: some of their jobs" in capsys.readouterr().err.replace("\n", " ")
    assert "| iterative-id | 8 |" in (tmp_path / "removed.md").read_text()


def test_results_of_other_weights_are_not_mixed(tmp_path: Path) -> None:
    class Module:
        jobs = staticmethod(lambda settings: [Job("a", lambda: [{"key": "a"}])])
        tables = staticmethod(lambda report: "")

    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "net.safetensors").write_bytes(b"one")
    settings = Settings(weights=weights)
    runner.run("toy", Module, settings, tmp_path, False)  # type: ignore[arg-type]
    runner.run("toy", Module, settings, tmp_path, False)  # type: ignore[arg-type]
    (weights / "net.safetensors").write_bytes(b"two")
    with pytest.raises(ExperimentError, match="other options or weights"):
        runner.run("toy", Module, settings, tmp_path, False)  # type: ignore[arg-type]

"""Every experiment runs from end to end with --quick, goes on where it was, and is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import experiment
from benchmarks.__main__ import main
from benchmarks.experiment import ExperimentError, Report, Setting

NAMES = list(experiment.experiments())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick")


@pytest.fixture(autouse=True)
def no_installed_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Fashion-MNIST would be used where it is installed; digits are everywhere."""
    monkeypatch.setattr("benchmarks.data.fashion.DEBIAN", Path("nowhere"))


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs_on_digits(
    name: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([name, "--quick", "--out", str(out)])
    path = out / f"{name}.json"
    report = Report.load(path)
    assert report.all
    module = experiment.experiments()[name]
    written = (out / f"{name}.md").read_text()
    assert written == experiment.heading(report) + "\n" + module.tables(report)
    assert f"python -m benchmarks {name} --quick" in written
    assert capsys.readouterr().out.strip()
    plots = list(out.glob(f"{name}*.svg"))
    assert bool(plots) == hasattr(module, "draw")
    assert all("<svg" in plot.read_text()[:2000] for plot in plots)

    before = path.read_bytes()
    main([name, "--quick", "--out", str(out)])  # all there: nothing is run again
    assert path.read_bytes() == before
    assert not list(out.glob("*.part"))


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[str] = []

    class Module:
        @staticmethod
        def jobs(setting: Setting) -> list[experiment.Job]:
            def work(key: str) -> list[dict[str, str]]:
                if key == "b" and len(done) < 2:
                    done.append(key)
                    raise KeyboardInterrupt
                done.append(key)
                return [{"key": key}]

            return [experiment.Job(key, lambda key=key: work(key)) for key in ("a", "b", "c")]

        @staticmethod
        def tables(report: Report) -> str:
            return ", ".join(row["key"] for row in report.all)

    with pytest.raises(KeyboardInterrupt):
        experiment.run("toy", Module, Setting(quick=True), tmp_path, False)  # type: ignore[arg-type]
    assert list(Report.load(tmp_path / "toy.json").rows) == ["a"]
    report = experiment.run("toy", Module, Setting(quick=True), tmp_path, False)  # type: ignore[arg-type]
    assert done == ["a", "b", "b", "c"]
    assert Module.tables(report) == "a, b, c"
    with pytest.raises(ExperimentError, match="start over with --fresh"):
        experiment.run("toy", Module, Setting(), tmp_path, False)  # type: ignore[arg-type]
    experiment.run("toy", Module, Setting(), tmp_path, True)  # type: ignore[arg-type]
    assert done[4:] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["baselines"], "--data is missing: give the folder with train.parquet"),
        (["fashion"], "--data is missing: give the folder with Fashion-MNIST"),
        (["imagenet"], "--data is missing; give the folder with ImageNet"),
        (["atom3d"], "--data is missing; give the folder with ATOM3D"),
        (["atom3d", "--data", "nowhere"], "nowhere is no folder"),
        (["fashion", "--data", "."], "has no train-images-idx3-ubyte.gz"),
    ],
)
def test_missing_data_are_asked_for(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--out", "out"])
    assert message in str(caught.value)
    assert not list((tmp_path / "out").glob("*.json"))


def test_tables_and_plots_can_be_made_again_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = experiment.RESULTS / "removed.json"
    (tmp_path / "removed.json").write_bytes(stored.read_bytes())
    main(["removed", "--redraw", "--out", str(tmp_path)])
    for name in ("removed.md", "removed.svg"):
        assert (tmp_path / name).read_bytes() == (experiment.RESULTS / name).read_bytes()
    assert "points of accuracy" in capsys.readouterr().out


def test_help_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in NAMES)


def test_result_files_are_json_of_rows() -> None:
    for name in NAMES:
        path = experiment.RESULTS / f"{name}.json"
        if path.is_file():
            stored = json.loads(path.read_text())
            assert stored["about"]["experiment"] == name
            assert not stored["about"]["options"]["quick"]
            assert all(run["command"] and run["machine"] for run in stored["about"]["runs"])


def test_all_goes_on_past_what_lacks_data_and_says_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(name: str, *_: object) -> Report:
        if name in ("atom3d", "imagenet"):
            raise ExperimentError("no data")
        ran.append(name)
        return Report.load(experiment.RESULTS / f"{name}.json")

    monkeypatch.setattr(experiment, "run", run)
    with pytest.raises(ExperimentError, match="atom3d: no data\nimagenet: no data"):
        main(["all", "--out", str(tmp_path)])
    assert set(ran) == set(NAMES) - {"atom3d", "imagenet"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["circle", "--quick", "--only", "nothing"], "no job of circle has 'nothing'"),
        (["circle", "--redraw"], "to draw; run circle first"),
        (["circle", "--quick", "--seeds", "0"], "--seeds 0: give at least 1"),
        (["circle", "--quick", "--device", "abacus"], "--device abacus"),
    ],
)
def test_nonsense_is_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--out", str(tmp_path)])
    assert message in f"{caught.value} {capsys.readouterr().err}"


def test_a_part_of_an_experiment_has_tables_and_no_plots_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["removed", "--quick", "--only", "iterative", "--out", str(tmp_path)])
    assert "no plots of removed: some jobs" in capsys.readouterr().err.replace("\n", " ")
    assert "iterative-id, class 8" in (tmp_path / "removed.md").read_text()


def test_other_weights_are_not_mixed_with_those_of_before(tmp_path: Path) -> None:
    class Module:
        jobs = staticmethod(lambda setting: [experiment.Job("a", lambda: [{"key": "a"}])])
        tables = staticmethod(lambda report: "")

    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "net.safetensors").write_bytes(b"one")
    setting = Setting(weights=weights)
    experiment.run("toy", Module, setting, tmp_path, False)  # type: ignore[arg-type]
    experiment.run("toy", Module, setting, tmp_path, False)  # type: ignore[arg-type]
    (weights / "net.safetensors").write_bytes(b"two")
    with pytest.raises(ExperimentError, match="perhaps with other weights"):
        experiment.run("toy", Module, setting, tmp_path, False)  # type: ignore[arg-type]

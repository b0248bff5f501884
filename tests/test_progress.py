"""Progress bars: shown when asked for, removed afterwards, silent elsewhere."""

from __future__ import annotations

import pytest

from interpress.progress import display, stages


def test_nothing_is_printed_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    for show in (None, False):
        with display(show) as bars, bars.task("working", 3) as advance:
            advance(1)
            advance(2, "still working")
    assert capfd.readouterr() == ("", "")


def test_bars_go_to_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich treat any stream as a terminal
    with display(True) as bars, bars.task("working hard", 3) as advance:
        advance(3)
    out, err = capfd.readouterr()
    assert out == ""
    assert "working hard" in err


def test_a_task_counts_what_is_done_and_ends_with_its_body() -> None:
    with display(False) as bars:
        with bars.task("known", 4) as advance, bars.task("unknown", None) as other:
            advance(3)
            advance(0.5, "renamed")
            other()
            tasks = {task.description: (task.completed, task.total) for task in _tasks(bars)}
            assert tasks == {"renamed": (3.5, 4), "unknown": (1, None)}
        assert _tasks(bars) == []
        with pytest.raises(RuntimeError, match="broken"), bars.task("failing", 1):
            raise RuntimeError("broken")
        assert _tasks(bars) == []


def test_stages_rename_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str | None] = []

    class Recorder:
        def __enter__(self) -> Recorder:
            return self

        def __exit__(self, *_: object) -> None: ...

        def task(self, title: str, total: float | None) -> Recorder:
            titles.append(title)
            return self

        def __call__(self, amount: float = 1, title: str | None = None) -> None:
            titles.append(title)

    monkeypatch.setattr("interpress.progress.display", lambda show: Recorder())
    with stages("finding spaces", 2) as begin:
        begin("capture")
        begin("follow")
    assert titles == ["finding spaces", "finding spaces: capture", "finding spaces: follow"]


def _tasks(bars: object) -> list:  # type: ignore[type-arg]
    return bars._progress.tasks  # type: ignore[attr-defined]

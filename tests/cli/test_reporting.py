"""`interpress report`, and what `compress` records for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

MODEL = ("nets.py:small", "--weights", "w.safetensors", "--data", "x.safetensors")


@pytest.fixture
def folders(shell: Shell) -> list[str]:
    for name, width in (("half", "0.5"), ("quarter", "0.25")):
        assert shell("compress", *MODEL, "--width", width, "--out", name, "--examples") == 0
    return ["half", "quarter"]


def test_one_folder_and_several(shell: Shell, folders: list[str]) -> None:
    first = Path("half/report.html").read_text()
    assert "interpress compress nets.py:small --weights w.safetensors" in first
    assert shell("report", "half") == 2
    assert "examples in it are not kept" in shell.err
    assert "--force" in shell.err
    assert Path("half/report.html").read_text() == first
    assert shell("report", "half", "--out", "again.html", "--json") == 0
    verdicts = json.loads(shell.out)["verdicts"]
    assert shell("report", *folders) == 0
    assert "comparison.html" in shell.out
    page = Path("comparison.html").read_text()
    assert 'href="half/report.html"' in page
    assert shell("report", *folders) == 2
    assert shell("report", *folders, "--force", "--json") == 0
    assert json.loads(shell.out)["verdicts"]["half"] == verdicts["half"]
    assert shell("report", "half", "--force") == 0
    assert "<img" not in Path("half/report.html").read_text()


def test_examples_are_shown_only_if_asked(shell: Shell, folders: list[str]) -> None:
    command = ("compress", *MODEL, "--width", "0.25", "--out", "plain")
    assert shell(*command) == 0
    shown = 'section id="examples"'
    assert shown in Path("quarter/report.html").read_text()
    assert shown not in Path("plain/report.html").read_text()


def test_what_is_no_result_is_refused(shell: Shell, folders: list[str]) -> None:
    assert shell("report", "photos") == 2
    assert "plan.json" in shell.err
    assert shell("report", "half", "half") == 2
    assert "given twice" in shell.err
    assert shell("report", "half", "--out", "quarter") == 2
    assert "is a folder" in shell.err
    plan = Path("half/plan.json")
    plan.write_text(plan.read_text().replace('"flops"', '"flups"', 1))
    assert shell("report", "half", "--force") == 2
    assert "was changed after it was written" in shell.err

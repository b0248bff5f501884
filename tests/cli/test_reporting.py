"""`interpress report`, and what `compress` records for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from interpress.report.facts import Facts
from interpress.report.verdict import verdict_of
from interpress.storage.result_folder import read_plan

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


def test_the_verdict_is_printed_with_the_rules_that_fail(shell: Shell) -> None:
    model = ("nets.py:two_heads", "--data", "x.safetensors")
    command = ("compress", *model, "--width", "0.25", "--out", "heads", "--output", "classes")
    assert shell(*command) == 0, shell.err
    lines = shell.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Verdict: "))
    end = next(i for i, line in enumerate(lines) if line.startswith("Saved to"))
    printed = lines[start:end]
    assert max(map(len, printed)) <= 80
    text = " ".join(" ".join(printed).split())
    assert "- not passed: No other output changed by more than 5 %. box changed by" in text
    rule = "The network has weights that were given. No weights were given: the network is as its"
    assert f"- not passed: {rule} function returned it." in text
    assert "- still open: It was judged on data that played no part" in text

    assert shell(*command, "--force", "--json") == 0
    verdict = json.loads(shell.out)["verdict"]
    assert verdict["level"] in ("look", "stop")
    rules = {row["rule"]: row["result"] for row in verdict["rules"]}
    assert rules["The network has weights that were given."] == "not passed"
    assert read_plan("heads")["report"]["as_built"] is True


def test_given_weights_are_recorded(shell: Shell, folders: list[str]) -> None:
    assert read_plan(folders[0])["report"]["as_built"] is False
    verdict = verdict_of(Facts(read_plan(folders[0])))
    (check,) = [c for c in verdict.checks if c.rule == "The network has weights that were given."]
    assert check.passed
    assert shell("compress", *MODEL, "--width", "0.5", "--out", "c", "--evaluation", MODEL[-1]) == 0
    text = " ".join(shell.out.split())
    assert "No: 120 of the 120 evaluation examples were used to calibrate or distil it." in text


def test_a_ruined_point_of_a_curve_is_named(shell: Shell) -> None:
    model = ("nets.py:two_heads", "--data", "x.safetensors", "--output", "classes")
    assert shell("curve", *model, "--points", "6", "--measure") == 0, shell.err
    lines = [line for line in shell.err.splitlines() if "of no use" in line]
    assert lines
    for line in lines:
        assert re.match(
            r"warning: at \d+\.\d% of the FLOPs: the smaller network is of no use", line
        )
        assert "The nearest budget" not in line
        assert "holds" not in line

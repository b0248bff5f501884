"""What the examples can show: whether they differ, and whether the original decides at all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from interpress import Result, demo
from interpress.report.facts import Facts
from interpress.report.verdict import verdict_of
from interpress.storage.result_folder import read_plan

BETTER = "The original is right more often than always guessing the commonest class."
SEVERAL = "The original decides for more than one class."
DISTINCT = "At least 90\xa0% of the examples are distinct."


@pytest.fixture
def record(folder: Path) -> dict[str, Any]:
    return copy.deepcopy(read_plan(folder))


def checks(record: dict[str, Any]) -> dict[str, bool]:
    return {check.rule: check.passed for check in verdict_of(Facts(record)).checks}


def rows(counts: list[int]) -> list[dict[str, Any]]:
    return [{"label": k, "count": n, "agreement": 1.0} for k, n in enumerate(counts)]


def test_an_original_that_guesses_is_no_evidence(record: dict[str, Any]) -> None:
    judged = record["evaluation"]
    judged |= {"examples": 1000, "decisions": 1000, "distinct": 1000, "classes": rows([600, 400])}
    judged["accuracy"] = [0.9, 0.9]
    assert checks(record)[BETTER]
    for accuracy in (0.0, 0.6, 0.62):  # labels that are shifted, a constant, and hardly more
        judged["accuracy"] = [accuracy, accuracy]
        assert not checks(record)[BETTER]
    assert verdict_of(Facts(record)).headline.startswith("Do not ship it on this evidence")


def test_one_decision_for_all_examples_is_no_evidence(record: dict[str, Any]) -> None:
    record["evaluation"] |= {"accuracy": None, "classes": rows([500])}
    assert not checks(record)[SEVERAL]
    record["evaluation"]["classes"] = rows([499, 1])
    assert checks(record)[SEVERAL]


def test_copies_of_one_example_are_no_evidence(result: Result, tmp_path: Path) -> None:
    image = demo.load_digits().test[0][:1]
    repeated = (image.expand(400, *image.shape[1:]), torch.zeros(400, dtype=torch.long))
    result.save(tmp_path / "copies", report=True, evaluation=[repeated])
    plan = read_plan(tmp_path / "copies")
    assert plan["evaluation"]["distinct"] == 1
    assert len(plan["evaluation"]["sha256"]) == 64
    assert not checks(plan)[DISTINCT]
    assert verdict_of(Facts(plan)).level == "look"


def test_without_evaluation_data_the_calibration_data_are_compared(record: dict[str, Any]) -> None:
    record["agreement"] |= {**record.pop("evaluation"), "on": "held-out examples"}
    assert checks(record)[DISTINCT]
    record["report"]["data"]["distinct"] = 1
    assert not checks(record)[DISTINCT]
    record["report"]["data"]["distinct"] = None  # a folder of an earlier version
    assert DISTINCT not in checks(record)

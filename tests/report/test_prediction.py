"""Predicted agreement passes through what was measured, and so does its band."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from interpress import Result
from interpress.report.facts import Facts
from interpress.report.prediction import predict
from interpress.report.tradeoff import prediction_of
from interpress.storage.result_folder import read_plan

POINTS = [{"noise": 0.0}, {"noise": 0.5}, {"noise": 1.0}, {"noise": 2.0}]


def test_the_curve_is_nested_and_falls(folder: Path, result: Result) -> None:
    record = read_plan(folder)
    points = record["report"]["curve"]["points"]
    assert points[0]["flops"] == 1.0
    assert points[0]["noise"] == 0.0
    assert points[0]["widths"] == [32, 64, 64]
    at = record["report"]["curve"]["at"]
    assert all(a["flops"] > b["flops"] for a, b in itertools.pairwise(points))
    predicted = [*points[:at], *points[at + 1 :]]  # the result itself may have other widths
    for wider, narrower in itertools.pairwise(predicted):
        pairs = zip(narrower["widths"], wider["widths"], strict=True)
        assert all(a <= b for a, b in pairs)
        assert narrower["noise"] >= wider["noise"]
    own = points[at]
    assert own["flops"] == pytest.approx(result.flops)
    assert own["noise"] == 1.0
    assert own["widths"] == [row["after"] for row in record["plan"]]
    found = prediction_of(Facts(record))
    assert found is not None
    assert found.measured == record["evaluation"]["agreement"]


def test_the_line_and_the_band_pass_through_the_measurement() -> None:
    judged = {"agreement": 0.9, "decisions": 200, "interval": [0.85, 0.94]}
    found = predict(judged, POINTS)
    assert found is not None
    assert found.line == pytest.approx([1.0, 0.95, 0.9, 0.8])
    assert found.low == pytest.approx([1.0, 0.925, 0.85, 0.7])
    assert found.high == pytest.approx([1.0, 0.97, 0.94, 0.88])
    assert not found.assumes_half


def test_if_nothing_changed_the_line_assumes_half_a_decision() -> None:
    found = predict({"agreement": 1.0, "decisions": 50, "interval": [0.93, 1.0]}, POINTS)
    assert found is not None
    assert found.measured == 1.0
    assert found.line[2] == pytest.approx(0.99)
    assert found.assumes_half


def test_an_error_grows_with_the_noise_and_nothing_comes_of_nothing() -> None:
    found = predict({"agreement": None, "output_error": 0.2, "decisions": 0}, POINTS)
    assert found is not None
    assert found.line == pytest.approx([0.0, 0.1, 0.2, 0.4])
    assert not found.is_share
    assert predict(None, POINTS) is None
    assert predict({"agreement": None, "output_error": None, "decisions": 0}, POINTS) is None


def test_without_a_measured_noise_nothing_is_predicted() -> None:
    judged = {"agreement": 1.0, "decisions": 10, "interval": [0.7, 1.0], "output_error": None}
    assert predict(judged, [{"noise": 0.5}, {"noise": None}]) is None
    assert predict(judged, [{"noise": 0.5}, {"noise": 1.0}]) is not None

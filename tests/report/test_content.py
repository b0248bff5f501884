"""Everything that the page shows, as plain data."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import asdict

import pytest
import torch
from torch import nn

import interpress
from interpress import Method, Result, agreement, demo
from interpress.report.content import content_of, predicted_agreement


def test_it_holds_what_was_asked_and_what_came_out(result: Result) -> None:
    test = demo.load_digits().test
    content = content_of(result, test)
    measured = agreement(result.original, result.model, test)
    assert content["asked"] == "flops=0.3"
    assert content["method"] == {"name": "preserve", **asdict(Method())}
    assert content["agreement"]["where"] == "evaluation data"
    assert content["agreement"]["share"] == measured.agreement
    assert content["agreement"]["interval"] == measured.interval
    assert content["agreement"]["accuracy"] == measured.accuracy
    assert [row["after"] for row in content["spaces"]] == list(result.widths.values())
    assert all(row["ratio"] >= 0.999 for row in content["spaces"])
    assert [row["name"] for row in content["frozen"]] == ["classifier"]
    assert content["made"]["seed"] == "0"
    assert re.search(r"fingerprint [0-9a-f]{16}", content["made"]["calibration"])
    labels = {row["label"]: (row["before"], row["after"]) for row in content["headline"]}
    assert labels["FLOPs per example"] == (result.before.flops, result.after.flops)


def test_decisions_that_changed_come_with_their_images(result: Result) -> None:
    test = demo.load_digits().test
    measured = agreement(result.original, result.model, test)
    flips = content_of(result, test)["flips"]
    assert 0 < len(flips) == len(measured.flips)
    for shown, flip in zip(flips, measured.flips, strict=True):
        assert (shown["index"], shown["before"], shown["after"], shown["label"]) == (
            flip.index, flip.before, flip.after, int(test[1][flip.index]),
        )  # fmt: skip
        assert shown["picture"].startswith("data:image/png;base64,")
    pictures = {shown["picture"] for shown in flips}
    assert len(pictures) == len(flips)


def test_without_evaluation_data_the_held_out_examples_are_shown(result: Result) -> None:
    content = content_of(result)
    assert result.agreement is not None
    assert content["agreement"]["where"] == "held-out examples"
    assert content["agreement"]["share"] == result.agreement.agreement
    assert content["agreement"]["examples"] == 60


def test_the_curve_is_nested_and_passes_through_the_result(result: Result) -> None:
    curve = content_of(result)["curve"]
    points = curve["points"]
    assert points[0]["flops"] == 1.0
    assert points[0]["agreement"] == 1.0
    assert points[0]["widths"] == [32, 64, 64]
    for wider, narrower in itertools.pairwise(points):
        pairs = zip(narrower["widths"], wider["widths"], strict=True)
        assert all(a <= b for a, b in pairs)
        assert narrower["flops"] < wider["flops"]
        assert narrower["agreement"] <= wider["agreement"] + 1e-9
    assert abs(points[curve["at"]]["flops"] - result.flops) < 0.05


def test_predicted_agreement_passes_through_the_measured_point(result: Result) -> None:
    (predicted,) = predicted_agreement(result, [result.point])
    assert result.agreement is not None
    measured, decisions = float(result.agreement), result.agreement.decisions
    assert predicted == pytest.approx(min(measured, 1 - 0.5 / decisions))


def test_a_regression_has_an_error_instead_of_agreement() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    result = interpress.compress(model, torch.randn(200, 6), flops=0.5)
    content = content_of(result)
    assert content["agreement"]["share"] is None
    assert content["agreement"]["output_error"] > 0
    assert content["curve"]["points"][0]["agreement"] is None
    assert content["flips"] == []
    assert json.loads(json.dumps(content, allow_nan=False)) is not None


def test_inputs_that_are_no_images_have_no_thumbnails() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 5))
    result = interpress.compress(
        model, torch.randn(200, 6), flops=0.2, method=Method(selection="random", refit=False)
    )
    flips = content_of(result)["flips"]
    assert len(flips) > 0
    assert all(flip["picture"] is None for flip in flips)

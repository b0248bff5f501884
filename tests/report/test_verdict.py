"""The verdict follows from the rules that the page prints."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import binom
from tests.report.reading import sections_of

from interpress import Result, demo
from interpress.evaluation.tally import wilson
from interpress.report.facts import Facts
from interpress.report.page import page_of
from interpress.report.verdict import _examples_needed, _tail, verdict_of
from interpress.storage.result_folder import read_plan


@pytest.fixture
def record(folder: Path) -> dict[str, Any]:
    return copy.deepcopy(read_plan(folder))


def failed(record: dict[str, Any]) -> list[str]:
    return [check.rule for check in verdict_of(Facts(record)).checks if check.failed]


def judged(record: dict[str, Any], share: float, examples: int) -> None:
    record["evaluation"] |= {
        "agreement": share, "examples": examples, "decisions": examples,
        "interval": list(wilson(share * examples, examples)), "classes": [],
        "distinct": examples,
    }  # fmt: skip


def timed(record: dict[str, Any], ratio: float, low: float = 0, high: float = 0) -> None:
    """Set the measured run time, with quartiles close to it unless they are given."""
    quartiles = [low or ratio - 0.01, high or ratio + 0.01]
    record["report"]["run"] |= {"ratio": ratio, "quartiles": quartiles}


def test_everything_passes(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    assert verdict_of(Facts(record)).level == "ship"
    assert failed(record) == []


def test_held_out_examples_alone_ask_for_one_more_measurement(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    judged(record, 1.0, 500)
    record["agreement"] |= {**record.pop("evaluation"), "on": "held-out examples"}
    verdict = verdict_of(Facts(record))
    assert verdict.level == "confirm"
    assert any("data that interpress has not seen" in sentence for sentence in verdict.to_do)


def test_evaluation_data_that_were_calibrated_on_do_not_count(record: dict[str, Any]) -> None:
    rule = "It was judged on data that played no part in making it."
    timed(record, 0.5)
    judged(record, 1.0, 500)
    for common, level in ((0, "ship"), (5, "confirm"), (6, "look"), (500, "look")):
        record["evaluation"]["in_common"] = common
        verdict = verdict_of(Facts(record))
        assert verdict.level == level
        found = next(check.found for check in verdict.checks if check.rule == rule)
        assert ("No" if common else "Yes") in found
        assert (f"{common} of the 500 evaluation examples" in found) == (common > 0)
        words = sections_of(page_of(record))["verdict"]
        assert ("none of which was used to make the smaller network" in words) == (common == 0)
        assert (f"of which {common} are calibration examples too" in words) == (common > 0)


def test_the_calibration_data_as_evaluation_data_are_recognised(
    result: Result, tmp_path: Path
) -> None:
    images, labels = demo.load_digits().calibration, torch.zeros(300, dtype=torch.long)
    result.save(tmp_path / "same", report=True, evaluation=[(images[7:], labels[7:])])
    facts = Facts(read_plan(tmp_path / "same"))
    assert facts.in_common == 293
    verdict = verdict_of(facts)
    assert verdict.level == "look"
    fitted = next(check for check in verdict.checks if "were not fitted" in check.rule)
    assert fitted.found.startswith("No: 293 of the 293 evaluation examples")


def test_the_worse_end_of_the_interval_counts(record: dict[str, Any]) -> None:
    judged(record, 1.0, 60)  # nothing changed, but 60 examples cannot show 95 %
    verdict = verdict_of(Facts(record))
    assert verdict.level == "look"
    assert "Judge it on about 75 examples" in verdict.to_do[0]
    judged(record, 1.0, 80)
    assert verdict_of(Facts(record)).level != "look"
    judged(record, 0.9, 10_000)
    assert "Keep more of the network" in verdict_of(Facts(record)).to_do[0]


def test_the_users_own_limit_comes_first(record: dict[str, Any]) -> None:
    judged(record, 0.96, 10_000)
    assert not any("decisions change" in rule for rule in failed(record))
    record["asked"] = {"budget": "agreement", "value": 0.99}
    assert any(rule.startswith("At most 1.00") for rule in failed(record))
    record["asked"] = {"budget": "agreement", "value": 0.9}
    judged(record, 0.93, 10_000)
    assert not any("decisions change" in rule for rule in failed(record))


def test_a_class_that_suffers_is_named(record: dict[str, Any]) -> None:
    rows = [
        {"label": k, "count": 200, "agreement": 0.99, "accuracy_before": None} for k in range(9)
    ]
    judged(record, 0.982, 2000)
    record["evaluation"]["classes"] = [*rows, {**rows[0], "label": 9, "agreement": 0.9}]
    found = [check for check in verdict_of(Facts(record)).checks if "No class" in check.rule]
    assert "1 class (9)" in found[0].found
    record["evaluation"]["classes"] = rows
    assert not any("No class" in rule for rule in failed(record))


def test_slower_warned_memorised_or_ruined(record: dict[str, Any]) -> None:
    timed(record, 1.1)
    assert failed(record) == ["It runs faster than the original."]
    timed(record, 0.9)
    record["report"]["warnings"] = ["the examples say too little about 'features.0'"]
    assert failed(record) == ["There were no warnings."]
    record["report"]["warnings"] = []
    record["agreement"]["confidence"] = 0.999
    assert failed(record) == ["There were no warnings."]  # other data may be training data too
    assert any("ignore this rule" in sentence for sentence in verdict_of(Facts(record)).to_do)
    record["report"]["warnings"] = ["the smaller network is of no use: it guesses"]
    assert verdict_of(Facts(record)).level == "stop"


def test_a_language_model_is_judged_by_its_perplexity(record: dict[str, Any]) -> None:
    tokens = {"tokens": 900, "perplexity": [20.0, 20.5], "top5": 0.9, "unigram": 300.0}
    record["evaluation"] |= {
        "tokens": tokens, "examples": 12, "decisions": 912, "classes": [], "distinct": 12,
    }  # fmt: skip
    timed(record, 0.5)
    assert failed(record) == []
    tokens["perplexity"] = [20.0, 21.5]
    assert failed(record) == ["The perplexity is at most 1.05 times that of the original."]
    tokens |= {"perplexity": [400.0, 400.0]}
    assert "better than the frequencies" in failed(record)[0]


def test_the_number_of_examples_is_enough_and_hardly_more() -> None:
    for share, limit in ((1.0, 0.05), (0.99, 0.05), (1.0, 0.01)):
        needed = _examples_needed(share, limit)
        assert needed is not None
        assert 1 - wilson(share * needed, needed)[0] <= limit
        fewer = int(0.8 * needed)
        assert 1 - wilson(share * fewer, fewer)[0] > limit
    assert _examples_needed(0.95, 0.05) is None


def test_the_tail_is_that_of_the_binomial_distribution() -> None:
    for same, number, share in ((180, 200, 0.98), (0, 3, 0.5), (7, 10, 0.7)):
        assert _tail(same, number, share) == pytest.approx(binom.cdf(same, number, share))
    assert _tail(5, 5, 0.9) == 1.0


def test_a_run_time_that_may_be_either_is_undecided(record: dict[str, Any]) -> None:
    timed(record, 0.97, 0.9, 1.05)
    verdict = verdict_of(Facts(record))
    assert verdict.level == "ship"
    assert "undecided" in verdict.headline
    assert any("varies too much" in sentence for sentence in verdict.to_do)
    assert not any("--round-to" in sentence for sentence in verdict.to_do)
    assert "lie between 90 % and 105 %. undecided" in sections_of(page_of(record))["checks"]
    timed(record, 1.02, 0.9, 1.05)
    assert verdict_of(Facts(record)).level == "ship"
    assert any("--round-to 8" in sentence for sentence in verdict_of(Facts(record)).to_do)
    timed(record, 1.02, 1.01, 1.05)
    assert verdict_of(Facts(record)).level == "look"


def test_the_run_time_of_a_file_is_that_in_onnx_runtime(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    record["report"]["model"]["onnx"] = "exported/net.onnx"
    record["onnx"] = {"time": 1.1, "quartiles": [1.05, 1.2], "examples": 16, "threads": 1}
    assert failed(record) == ["It runs faster than the original (net.onnx in ONNX Runtime)."]
    assert "--round-to 8" in verdict_of(Facts(record)).to_do[0]
    words = sections_of(page_of(record))
    assert "run time in ONNX Runtime 100 % 110 % 110.0 %" in words["costs"]
    assert "The run time is that of net.onnx and of the smaller file" in words["costs"]
    assert "net.onnx in ONNX Runtime is 110 % of the original's" in words["verdict"]
    record["onnx"] |= {"time": 0.8, "quartiles": [0.7, 0.9]}
    assert failed(record) == []


def test_other_outputs_count(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    box = {"name": "box", "error": 0.04, "equal": None}
    record["evaluation"]["others"] = [box, {"name": "count", "error": None, "equal": 0.97}]
    assert failed(record) == []
    top = sections_of(page_of(record))["verdict"]
    assert "in the output" not in top  # of a plan that does not name it
    record["evaluation"]["output"] = "scores"
    top = sections_of(page_of(record))["verdict"]
    assert "Their decisions in the output scores were compared" in top
    assert "decisions in the output scores changed" in top
    assert "Of the 2 other outputs, box changed most: by 4.0 %" in top
    box["error"] = 0.5
    rule = "No other output changed by more than 5\xa0%."
    assert failed(record) == [rule]
    assert "Check whether you use the output box." in verdict_of(Facts(record)).to_do[0]
    box["error"] = None  # not finite
    assert failed(record) == [rule]
    record["evaluation"]["others"] = [{"name": "count", "error": None, "equal": 0.9}]
    assert failed(record) == [rule]
    assert "The other output, count, changed by 10.0 %" in sections_of(page_of(record))["verdict"]


def test_a_network_without_given_weights(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    assert record["report"]["as_built"] is None  # a call in Python
    record["report"]["as_built"] = False
    assert failed(record) == []
    record["report"]["as_built"] = True
    assert failed(record) == ["The network has weights that were given."]
    assert "--weights" in verdict_of(Facts(record)).to_do[0]


def test_the_to_do_is_about_the_warning_that_there_was(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    record["agreement"]["confidence"] = 0.999
    assert "not trained on" in verdict_of(Facts(record)).to_do[0]
    assert not any("spaces" in sentence for sentence in verdict_of(Facts(record)).to_do)
    record["agreement"]["confidence"] = 0.9
    record["report"]["warnings"] = ["the examples say too little about 'features.0'"]
    assert verdict_of(Facts(record)).to_do[0].startswith("Give more calibration examples")


def test_a_significant_drop_of_accuracy_fails(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    rule = "It is not significantly less accurate than the original (McNemar's test, 5 %)."
    judged(record, 0.98, 10_000)
    classes = [{"label": 3, "accuracy_before": 0.9, "accuracy_after": 0.8, "count": 5,
                "agreement": 0.9}]  # fmt: skip
    for lost, gained in ((0, 0), (14, 6), (60, 41), (100, 76), (100, 71), (30, 80), (10, 1)):
        record["evaluation"] |= {
            "accuracy": [0.9, 0.9 - (lost - gained) / 10_000], "turned": [lost, gained, 7],
            "classes": classes,
        }  # fmt: skip
        # the exact test: lost decisions among all that are right in one network only
        fails = bool(binom.cdf(gained, lost + gained, 0.5) < 0.025)
        assert (rule in failed(record)) is fails, (lost, gained)
    (check,) = (c for c in verdict_of(Facts(record)).checks if c.rule == rule)
    assert "10 right decisions became wrong, 1 wrong ones right" in check.found
    assert "class 3 (by 10.0 points)" in check.remedy
    record["evaluation"] |= {"accuracy": None, "turned": None}
    assert rule not in [check.rule for check in verdict_of(Facts(record)).checks]


def test_the_worse_end_of_the_perplexity_counts(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    tokens = {"perplexity": [10.0, 10.4], "unigram": 50.0, "tokens": 9, "top5": 0.9}
    record["evaluation"] |= {"tokens": {**tokens, "interval": [1.03, 1.06]}, "examples": 100}
    (rule,) = (name for name in failed(record) if "perplexity" in name)
    assert "worse end" in rule
    record["evaluation"]["tokens"]["interval"] = [1.03, 1.049]
    assert not [name for name in failed(record) if "perplexity" in name]


def test_held_out_examples_of_other_data_may_have_been_fitted(record: dict[str, Any]) -> None:
    timed(record, 0.5)
    judged(record, 1.0, 500)
    record["agreement"] |= {**record.pop("evaluation"), "on": "held-out examples"}
    origin = {"call": "", "examples": 500, "sha256": record["report"]["data"]["sha256"]}
    record["distilled"] = {"steps": 5, "kept": True, "origin": origin}
    rule = "It was judged on examples that were not fitted."
    found = {check.rule: check for check in verdict_of(Facts(record)).checks}
    assert found[rule].passed  # the same data and seed hold out the same examples
    record["distilled"]["origin"]["sha256"] = "of other data"
    found = {check.rule: check for check in verdict_of(Facts(record)).checks}
    assert not found[rule].passed
    assert found[rule].is_final

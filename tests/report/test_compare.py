"""Several results on one page."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from tests.report.reading import sections_of

from interpress import Analysis, Result
from interpress.report.compare import Entry, comparison_page
from interpress.report.facts import Facts
from interpress.storage.plan_record import plan_record
from interpress.storage.result_folder import read_plan


@pytest.fixture(scope="module")
def entries(folder: Path, demo_analysis: Analysis) -> list[Entry]:
    half = demo_analysis.compress(flops=0.5)
    return [
        Entry("third", Facts(read_plan(folder)), "third/report.html"),
        Entry("half", Facts(plan_record(half))),
    ]


def test_every_result_has_its_row_and_a_dot(entries: list[Entry], result: Result) -> None:
    page = comparison_page(entries)
    words = sections_of(page)["results"]
    assert f"third flops=0.3 preserve {100 * result.flops:.1f} %" in words
    assert '<a href="third/report.html">third</a>' in page
    assert '<a href="half' not in page
    assert page.count('class="dot"') == 2  # against FLOPs; only one has a run time
    assert "https://" not in page
    used = set(re.findall(r'href="#(term-[a-z-]+)"', page))
    assert used == set(re.findall(r'<dt id="(term-[a-z-]+)"', page))


def test_what_does_not_compare_is_said(entries: list[Entry]) -> None:
    words = sections_of(comparison_page(entries))
    assert "judged on different data" in words["verdict"]
    assert "different original weights" not in words["verdict"]
    other = copy.deepcopy(entries[0].facts.record)
    assert isinstance(other, dict)
    other["report"]["digests"]["original"] = "0"
    words = sections_of(comparison_page([entries[0], Entry("other", Facts(other))]))
    assert "different original weights" in words["verdict"]
    assert "judged on different data" not in words["verdict"]
    assert "verdict" not in sections_of(comparison_page([entries[0], entries[0]]))


def test_the_fastest_is_that_of_the_results_which_passed(entries: list[Entry]) -> None:
    good, fast = (copy.deepcopy(dict(entries[0].facts.record)) for _ in range(2))
    good["report"]["run"] |= {"ratio": 0.9, "quartiles": [0.9, 0.9]}
    fast["report"]["run"] |= {"ratio": 0.6, "quartiles": [0.6, 0.6]}
    fast["report"]["warnings"] = ["the examples say too little about 'features.0'"]
    page = comparison_page([Entry("good", Facts(good)), Entry("fast", Facts(fast))])
    words = sections_of(page)["results"]
    assert "it is also the fastest of those whose checks passed, with 90 % of the run time" in words

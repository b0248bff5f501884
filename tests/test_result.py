"""`Result`: what it prints, shows in notebooks and writes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from tests.digits import Trained

import interpress
from interpress import Analysis, Method, Result


@pytest.fixture(scope="module")
def result(analysis: Analysis) -> Result:
    return analysis.compress(flops=0.3)


def test_the_summary_fits_80_columns_and_has_a_row_per_space(result: Result) -> None:
    text = result.summary()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert str(result) == text
    assert "preserve, asked for flops=0.3" in text
    assert f"on held-out examples: {result.agreement}"[:60] in text
    for row in result.plan:
        (line,) = [line for line in lines if f"│ {row.name} " in line]
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        assert cells[:4] == [
            row.name, str(row.before), str(row.after), f"{row.after / row.before:.0%}",
        ]  # fmt: skip
        changed = row.after < row.before
        assert cells[4:] == ([f"{row.error:.1%}", f"{row.ratio:.2f}"] if changed else ["", ""])
    (flops,) = [line for line in lines if "FLOPs per example" in line]
    assert f"{result.before.flops:,}" in flops
    assert f"{result.flops:.1%}" in flops


def test_a_changed_method_is_named_in_the_title(analysis: Analysis) -> None:
    changed = analysis.compress(width=0.5, method=Method(refit=False))
    assert "preserve with refit=False, asked for width=0.5" in changed.summary()


def test_the_repr_is_one_line(result: Result) -> None:
    text = repr(result)
    assert "\n" not in text
    assert "flops=0.3" in text
    assert str(result.agreement) in text


def test_notebooks_get_tables_and_a_figure(result: Result) -> None:
    html = result._repr_html_()
    assert html.count("<table>") == 2
    assert all(row.name in html for row in result.plan)
    figure = pytest.importorskip("plotly") and result.plot()
    assert len(figure.data) == 2
    assert figure.data[1].x[0] == pytest.approx(100 * result.flops)


def test_saving_with_a_report_and_reporting_alone_write_the_same_page(
    result: Result, tmp_path: Path
) -> None:
    result.save(tmp_path / "folder", report=True)
    result.report(tmp_path / "page.html")
    assert (tmp_path / "folder" / "report.html").read_text() == (tmp_path / "page.html").read_text()


def test_a_result_says_that_nothing_was_removed(analysis: Analysis) -> None:
    result = analysis.compress(flops=1.0)
    assert result.flops == 1.0
    assert "Nothing was removed" in result.summary().replace("\n", " ")


def test_a_refit_is_not_covered_by_a_certificate(analysis: Analysis) -> None:
    plain = analysis.compress(error=0.2)
    assert "certificate of error= is about T" not in plain.summary()
    refitted = analysis.compress(error=0.2, method=Method())
    assert refitted.network.refit_kept
    assert "certificate of error= is about T" in refitted.summary()


def test_a_network_in_training_mode_gives_one_in_evaluation_mode(digits: Trained) -> None:
    model = copy.deepcopy(digits.model).train()
    result = interpress.compress(model, digits.calibration, flops=0.5, method="constant-id")
    assert model.training
    assert not any(module.training for module in result.model.modules())

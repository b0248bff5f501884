"""The generated pages show the result files, and the claims on them hold in the files."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest
from benchmarks import page, provenance, published
from benchmarks.experiment import RESULTS, Report, experiments
from benchmarks.experiments import baselines, removed
from benchmarks.tables import interval_half_width

# Without a result file: the data of the first two are not available (the commands are tested on
# stand-ins), and the last one was not run at full size yet.
NOT_RUN = {"imagenet", "atom3d", "systems"}
# Figures of the paper in the template. Our own figures must come from the result files.
PAPER_FIGURES = {
    "94.6", "94.0", "93.3", "97.3", "93.2", "93.0", "95.9", "68.0", "92.6", "88.6",
}  # fmt: skip
TEMPLATE = page.TEMPLATES[page.EVIDENCE]


@pytest.mark.parametrize("path", page.TEMPLATES, ids=lambda path: path.stem)
def test_a_page_equals_its_rendered_template(path: Path) -> None:
    text = path.read_text()
    assert text == page.render(page.TEMPLATES[path]), "run python -m benchmarks page"
    assert "{{" not in text


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_tables_beside_a_result_file_show_its_rows(path: Path) -> None:
    expected = page.result_markdown(path)
    assert path.with_suffix(".md").read_text() == expected, "run python -m benchmarks page"


@pytest.mark.parametrize("name", sorted(set(experiments()) - NOT_RUN))
def test_an_experiment_is_on_the_page_with_its_commands_and_tables(name: str) -> None:
    text = page.EVIDENCE.read_text()
    report = Report.load(RESULTS / f"{name}.json")
    assert f"`benchmarks/results/{name}.json`" in text
    assert provenance.heading(report) in text
    assert experiments()[name].tables(report) in text


@pytest.mark.parametrize("name", sorted(NOT_RUN))
def test_an_experiment_without_results_has_its_command_on_the_page(name: str) -> None:
    assert f"python -m benchmarks {name}" in page.EVIDENCE.read_text()


def test_a_conditional_part_needs_its_result_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template.md"
    template.write_text("before\n\n{{if circle}}\nshown\n\n{{end}}\nafter\n")
    assert page.render(template) == "before\n\nshown\n\nafter\n"
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    assert page.render(template) == "before\n\nafter\n"


def test_results_that_did_not_exist_are_in_conditional_parts() -> None:
    for name in NOT_RUN & {name for name in experiments() if f"{{{{{name}}}}}" in _template()}:
        assert f"{{{{if {name}}}}}\n{{{{{name}}}}}" in _template()


def _template() -> str:
    return TEMPLATE.read_text()


def test_the_published_figures_are_on_the_page() -> None:
    assert published.markdown() in page.EVIDENCE.read_text()


def test_every_other_measurement_is_on_a_page() -> None:
    files = sorted(RESULTS.glob("preserve-*.md"))
    pages = page.EVIDENCE.read_text() + (page.ROOT / "docs" / "distillation.md").read_text()
    missing = [path.name for path in files if path.read_text() not in pages]
    assert files
    assert not missing


@pytest.mark.parametrize("old", ["", "| a table |\n|---|\n\n"])
def test_a_page_gets_the_table_that_its_comment_names(old: str) -> None:
    name = "benchmarks/results/preserve-distill-cuda.json"
    comment = f"<!-- This table is benchmarks.page.result_markdown of {name}; a test compares -->"
    table = page.result_markdown(page.ROOT / name)
    text = f"before\n\n{comment}\n\n{old}after\n"
    assert page.with_tables(text) == f"before\n\n{comment}\n\n{table}\nafter\n"
    unknown = text.replace("distill-cuda", "unknown")
    assert page.with_tables(unknown) == unknown


def test_every_plot_of_the_page_exists() -> None:
    plots = re.findall(r"\]\(\.\./benchmarks/results/([^)]*)\)", page.EVIDENCE.read_text())
    assert all((RESULTS / plot).is_file() for plot in plots)
    assert {path.name for path in RESULTS.glob("*.svg")} <= set(plots)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_results_of_other_code_are_shown_with_their_version(path: Path) -> None:
    """A result is older if the modules that it measures have another hash than it records."""
    versions = provenance.versions_of(path)
    assert versions
    stored = json.loads(path.read_text())
    runs = stored["about"]["runs"] if "about" in stored else [stored]
    if all(
        isinstance(run, dict) and run.get("code") == provenance.code_hash(path.stem) for run in runs
    ):
        return
    for page_path in (page.ROOT / "README.md", *sorted((page.ROOT / "docs").glob("*.md"))):
        text, tables = page_path.read_text(), _tables_in(path)
        for start in (text.index(table) for table in tables if table in text):
            section = text[text.rfind("\n#", 0, start) : start]
            assert all(version in section for version in versions), (page_path.name, path.name)


def _tables_in(path: Path) -> list[str]:
    """Return the tables of a result file, as they stand on a page."""
    text = path.with_suffix(".md").read_text()
    tables = re.findall(r"^\|.*\n(?:\|.*\n?)+", text, re.MULTILINE)
    headline = [page.headline()] if path == RESULTS / "baselines.json" else []
    return [table.rstrip("\n") for table in tables] + headline


def test_the_template_has_no_figures_of_ours() -> None:
    prose = re.sub(r"\{\{[^}]*\}\}|`[^`]*`", "", TEMPLATE.read_text())
    assert set(re.findall(r"\b\d{2}\.\d\b", prose)) <= PAPER_FIGURES


def test_the_readme_shows_the_headline() -> None:
    readme = (page.ROOT / "README.md").read_text()
    assert page.headline() in readme, "put benchmarks.page.headline() there"


@pytest.mark.parametrize("network", ["vgg16", "mobilenetv1", "resnet56"])
def test_preserve_exceeds_every_baseline_and_torch_pruning(network: str) -> None:
    report = Report.load(RESULTS / "baselines.json")
    seeds = report.distinct("seed", network=network, method="preserve")
    assert len(seeds) >= 3
    competitors = {
        (row["method"], row["correction"])
        for row in report.where(network=network)
        if "preserve" not in row["method"] and baselines.PRESERVE_WIDTHS not in row["method"]
    }
    assert {name for name, _ in competitors} >= {*baselines.BASELINES, "Torch-Pruning L1"}
    for method, correction in competitors:
        rows = report.where(network=network, method=method, correction=correction)
        margins = baselines.leads(report, network, rows)
        assert len(margins) == len(seeds)
        mean = sum(margins) / len(margins)
        assert mean - interval_half_width(margins) > 0, (method, correction)


def test_all_networks_of_the_comparison_have_half_of_the_flops() -> None:
    """Only the uniform ratios of Torch-Pruning on ResNet-56 are too coarse for that."""
    report = Report.load(RESULTS / "baselines.json")
    coarse = {
        (row["network"], row["method"])
        for row in report.all_rows
        if not 0.49 < row["flops"] < 0.505
    }
    assert coarse <= {
        ("resnet56", f"Torch-Pruning {importance}{suffix}")
        for importance in ("L1", "group L1", "group L2")
        for suffix in ("", baselines.INTERIORS)
    }


def test_a_removed_class_stays_within_five_points_with_preserve() -> None:
    report = Report.load(RESULTS / "removed.json")
    for network, label in product(removed.NETWORKS, removed.CLASSES):
        gaps = removed.gaps(report, network, "preserve", label)
        assert len(gaps) == 3
        assert sum(gaps) / len(gaps) <= 5, (network, label)


@pytest.mark.parametrize("label", removed.FINE_TUNED_CLASSES)
def test_fine_tuning_forgets_a_removed_class(label: int) -> None:
    report = Report.load(RESULTS / "removed.json")
    (gap,) = removed.gaps(report, "vgg16", removed.FINE_TUNED, label)
    assert gap > 50


def test_the_lead_of_preserve_grows_as_less_is_kept() -> None:
    """What the third sentence of the page says, for every network."""
    report = Report.load(RESULTS / "curves.json")
    for network in report.distinct("network"):
        leads = []
        for asked in (0.7, 0.5, 0.3):
            means: dict[str, list[float]] = {}
            for row in report.where(network=network, asked=asked):
                if "agreement" not in row:  # a method that failed
                    continue
                means.setdefault(row["method"], []).append(row["agreement"])
            ours = means.pop("preserve")
            best = max(sum(values) / len(values) for values in means.values())
            leads.append(sum(ours) / len(ours) - best)
        assert 0 < leads[0] < leads[1] < leads[2], (network, leads)

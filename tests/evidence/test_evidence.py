"""docs/evidence.md shows the result files, and what it claims is in them."""

from __future__ import annotations

import re
from itertools import product

import pytest
from benchmarks import experiment, page
from benchmarks.experiment import RESULTS, Report
from benchmarks.experiments import baselines, removed
from benchmarks.tables import half_width

# data that cannot be had here; their commands are tested on stand-ins
NOT_RUN = {"imagenet", "atom3d"}


def test_the_page_is_what_the_files_make_of_it() -> None:
    assert page.PAGE.read_text() == page.render(), "run python -m benchmarks page"


def test_every_experiment_is_on_the_page_with_its_file() -> None:
    text = page.PAGE.read_text()
    for name, module in experiment.experiments().items():
        if name in NOT_RUN:
            assert f"python -m benchmarks {name}" in text
            continue
        report = Report.load(RESULTS / f"{name}.json")
        assert f"`benchmarks/results/{name}.json`" in text
        assert experiment.heading(report) in text
        assert module.tables(report) in text
        written = experiment.heading(report) + "\n" + module.tables(report)
        assert (RESULTS / f"{name}.md").read_text() == written
    assert "{{" not in text
    for plot in re.findall(r"\]\(\.\./benchmarks/results/([^)]*)\)", text):
        assert (RESULTS / plot).is_file()


def test_the_template_holds_no_figures_of_ours() -> None:
    """Only the paper's, and sizes that are settings; ours are read from the files."""
    template = page.TEMPLATE.read_text()
    prose = re.sub(r"\{\{[^}]*\}\}|`[^`]*`", "", template)
    percentages = set(re.findall(r"\b\d{2}\.\d\b", prose))
    assert percentages <= {
        "94.6",
        "94.0",
        "93.3",
        "97.3",
        "93.2",
        "93.0",
        "95.9",
        "68.0",
        "92.6",
        "88.6",
    }


def test_the_readme_shows_what_the_files_say() -> None:
    readme = (page.PAGE.parents[1] / "README.md").read_text()
    assert page.headline() in readme, "put page.headline() there"


@pytest.mark.parametrize("network", ["vgg16", "mobilenetv1", "resnet56"])
def test_preserve_beats_every_baseline_and_torch_pruning_with_an_interval(network: str) -> None:
    report = Report.load(RESULTS / "baselines.json")
    ours = {
        row["seed"]: row["agreement"] for row in report.where(network=network, method="preserve")
    }
    assert len(ours) >= 3
    rows = report.where(network=network)
    coarse = [row for row in rows if not 0.49 < row["flops"] < 0.505]
    assert {(row["network"], row["method"]) for row in coarse} <= {
        ("resnet56", f"Torch-Pruning {importance}{spared}")
        for importance in ("L1", "group L1", "group L2")
        for spared in ("", ", interiors only")
    }
    own_parts = ("preserve", "our widths")  # ours with parts replaced, not rivals
    rivals = {
        (row["method"], row["correction"])
        for row in rows
        if not any(part in row["method"] for part in own_parts)
    }
    assert {name for name, _ in rivals} >= {*baselines.BASELINES, "Torch-Pruning L1"}
    for method, correction in rivals:
        own = report.where(network=network, method=method, correction=correction)
        ahead = [ours[row["seed"]] - row["agreement"] for row in own]
        assert len(ahead) == len(ours)
        assert sum(ahead) / len(ahead) - half_width(ahead) > 0, (method, correction)


def test_a_removed_class_stays_within_five_points_with_preserve() -> None:
    report = Report.load(RESULTS / "removed.json")
    beyond = dict.fromkeys(removed.NETWORKS, 0)
    for network, label in product(removed.NETWORKS, removed.CLASSES):
        found = removed.at_the_end(report, network, "preserve", label)
        gaps = [own - others for own, others in map(removed.losses, found)]
        assert len(gaps) == 3
        beyond[network] += sum(gaps) / len(gaps) > 5
    assert set(beyond.values()) == {0}
    tuned = [row for row in report.all if row["method"].startswith("l1")]
    last = max(row["epoch"] for row in tuned)
    for row in tuned:
        if row["epoch"] == last:
            own, others = removed.losses(row)
            assert own - others > 50

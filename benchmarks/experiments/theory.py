"""The paper's lemma and theorem on one-hidden-layer networks trained on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.data.fashion import load_pictures
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.experiments.fashion import trained
from benchmarks.tables import number, table
from interpress.theory import hidden_layer, risks

ABOUT = "the empirical-risk lemma and the generalization bound on Fashion-MNIST networks"
WIDTHS = (128, 512, 1024)


def jobs(setting: Setting) -> Iterator[Job]:
    """One per width."""
    for width in (32,) if setting.quick else WIDTHS:
        yield Job(f"{width}", partial(_one, setting, width))


def _one(setting: Setting, width: int) -> list[Row]:
    pictures = load_pictures(setting)
    model = trained(setting, pictures, width, 1, 0, 0).cpu()
    count = setting.count(10_000, 600)
    layer = hidden_layer(model, pictures.train.images[:count])
    test = hidden_layer(model, pictures.test.images).activations
    ks = [width // 8, width // 4, width // 2, 3 * width // 4]
    return [
        {"data": pictures.name, "width": width, "k": risk.k, "eps": risk.eps,
         "T": risk.T_norm, "empirical": risk.empirical, "lemma": risk.lemma,
         "holds": risk.holds, "test": risk.test, "M": risk.M, "p": risk.p,
         "bound": None if risk.generalization == float("inf") else risk.generalization,
         "examples": risk.examples, "enough": risk.enough}
        for risk in risks(layer, ks, test=test)
    ]  # fmt: skip


def tables(report: Report) -> str:
    """The two sides of the lemma, and what the theorem can say."""
    lines = [
        [f"{row['width']} to {row['k']}", number(row["eps"]), number(row["T"]),
         number(row["empirical"]), number(row["lemma"]), "yes" if row["holds"] else "no",
         number(row["test"]), number(row["M"]),
         "says nothing" if row["bound"] is None else number(row["bound"]), f"{row['enough']:.0e}"]
        for row in report.all
    ]  # fmt: skip
    header = ["neurons", "eps", "norm of T", "empirical risk", "lemma", "holds",
              "risk on test images", "M", "theorem", "examples it needs"]  # fmt: skip
    return table(header, lines)


def draw(report: Report, folder: Path) -> None:
    """Risk measured and bounded."""
    from benchmarks.plots import COLOURS, figure, legend_below

    with figure(folder / "theory.svg") as (axis,):
        for place, width in enumerate(dict.fromkeys(row["width"] for row in report.all)):
            rows = report.where(width=width)
            share = [row["k"] / width for row in rows]
            for key, style in (("empirical", "-"), ("test", ":"), ("lemma", "--")):
                axis.semilogy(share, [row[key] for row in rows], style, color=COLOURS[place],
                              label=f"{width}: {key}")  # fmt: skip
        axis.set_xlabel("share of neurons kept")
        axis.set_ylabel("mean squared change of the outputs")
        legend_below(axis)

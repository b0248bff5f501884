"""The paper's lemma and theorem on one-hidden-layer networks trained on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.data.fashion import load_pictures
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.experiments.fashion import trained
from benchmarks.tables import significant, table
from interpress.theory import hidden_layer, risks

ABOUT = "the empirical-risk lemma and the generalization bound on Fashion-MNIST networks"
WIDTHS = (128, 512, 1024)


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per width."""
    for width in (32,) if settings.quick else WIDTHS:
        yield Job(f"{width}", partial(_run, settings, width))


def _run(settings: Settings, width: int) -> list[Row]:
    pictures = load_pictures(settings)
    model = trained(settings, pictures, width).cpu()
    count = settings.choose(10_000, 600)
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
    """Return both sides of the lemma, and the bound of the theorem."""
    lines = [
        [f"{row['width']} to {row['k']}", significant(row["eps"]), significant(row["T"]),
         significant(row["empirical"]), significant(row["lemma"]), "yes" if row["holds"] else "no",
         significant(row["test"]), significant(row["M"]),
         "vacuous" if row["bound"] is None else significant(row["bound"]), f"{row['enough']:.0e}"]
        for row in report.all_rows
    ]  # fmt: skip
    header = ["neurons", "eps", "norm of T", "empirical risk", "bound of the lemma", "lemma holds",
              "risk on test images", "M", "bound of the theorem",
              "examples the theorem needs"]  # fmt: skip
    caption = "Risks are mean squared changes of the outputs, summed over the ten outputs"
    return f"{caption}\n\n" + table(header, lines)


def draw(report: Report, folder: Path) -> None:
    """Plot measured risks and the bound of the lemma."""
    from benchmarks.plots import COLOURS, figure, legend_below

    titles = {"empirical": "empirical risk", "test": "risk on test images", "lemma": "lemma"}
    with figure(folder / "theory.svg") as (axis,):
        for colour, width in zip(COLOURS, report.distinct("width"), strict=False):
            rows = report.where(width=width)
            fractions = [row["k"] / width for row in rows]
            for (key, title), style in zip(titles.items(), ("-", ":", "--"), strict=True):
                axis.semilogy(fractions, [row[key] for row in rows], style, color=colour,
                              label=f"{width} neurons: {title}")  # fmt: skip
        axis.set_xlabel("fraction of the neurons kept")
        axis.set_ylabel("mean squared change of outputs")
        legend_below(axis)

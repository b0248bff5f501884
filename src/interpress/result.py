"""What comes back: the smaller network, what was planned, and the evidence."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import nn

from interpress.allocation.curve import Point, point_at, trade_off
from interpress.allocation.problem import WidthLimits
from interpress.budgets.budget import Budget
from interpress.evaluation.tally import Agreement
from interpress.linalg.interpolation import Interpolation
from interpress.linalg.ordering import ColumnOrdering
from interpress.method import Method
from interpress.network.network import Network
from interpress.pipeline.outcome import SpacePlan
from interpress.pipeline.study import Study
from interpress.progress import bars
from interpress.report import figure_of, html_tables, report_page
from interpress.spaces.batching import captured_examples
from interpress.spaces.cost import Cost
from interpress.spaces.spaces import Spaces
from interpress.storage import files as storage
from interpress.storage.result_folder import save_result
from interpress.surgery.interpolations import tap_orderings


@dataclass(frozen=True, eq=False)
class Result:
    """A compressed network with its evidence.

    `model` is an ordinary network of the original's classes; `plan` says per space what was kept
    and how well the rest is rebuilt; `agreement` is measured on held-out calibration data.
    """

    budget: Budget
    method: Method
    known: Study = field(repr=False)
    widths: Mapping[str, int]
    built: Network
    seed: int
    limits: WidthLimits
    latency: float | None = None
    """Measured time over the original's, where that was the budget."""

    @property
    def spaces(self) -> Spaces:
        """The channel spaces of the original."""
        return self.known.spaces

    @property
    def model(self) -> nn.Module:
        """The smaller network."""
        return self.built.model

    @property
    def agreement(self) -> Agreement | None:
        """Agreement with the original on held-out calibration data."""
        return self.built.agreement

    @cached_property
    def before(self) -> Cost:
        """What the original costs, per example."""
        return _each(self.spaces.cost(), self.spaces)

    @cached_property
    def after(self) -> Cost:
        """What the smaller network costs, per example."""
        return _each(self.spaces.cost(self.widths), self.spaces)

    @property
    def flops(self) -> float:
        """The fraction of FLOPs that is left."""
        return self.after.flops / self.before.flops

    @property
    def params(self) -> float:
        """The fraction of parameters that is left."""
        return self.after.parameters / self.before.parameters

    @cached_property
    def plan(self) -> tuple[SpacePlan, ...]:
        """Per space that can shrink: widths, kept channels, error, and its ratio to the SVD's."""
        return tuple(self._space_plan(name) for name in self.widths)

    @cached_property
    def _taps(self) -> dict[str, tuple[ColumnOrdering, Interpolation]]:
        return tap_orderings(self.spaces, self.built.cut.kept, self.known.seen.factors)

    def _space_plan(self, name: str) -> SpacePlan:
        space, cut = self.spaces[name], self.built.cut
        kept = tuple(cut.kept[name].tolist()) if name in cut.kept else tuple(range(space.size))
        worst = (0.0, 0.0)
        for tap in space.taps:
            if tap in self._taps:
                ordering, found = self._taps[tap]
                whole = ordering.spectral_norm or 1.0
                bound = ordering.svd_bound(found.k).spectral / whole
                worst = max(worst, (found.spectral_error / whole, bound))
        return SpacePlan(name, space.size, self.widths[name], kept, *worst)

    def summary(self) -> str:
        """A table that fits 80 columns."""
        console = Console(width=80, record=True, file=io.StringIO(), force_terminal=False)
        console.print(self._headline())
        console.print(self._table())
        return console.export_text().rstrip()

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"Result({self.budget}, flops={self.flops:.3f}, agreement={self.agreement})"

    @cached_property
    def curve(self) -> list[Point]:
        """The predicted trade-off that this result is a point of, from the same factorizations."""
        with bars(False) as places:
            return trade_off(self.known, self.method, self.limits, 50, places)

    @cached_property
    def point(self) -> Point:
        """This result on that curve."""
        with bars(False) as places:
            problem = self.known.problem(self.method, "flops", self.limits, places)
        return point_at(self.known, problem, self.widths)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        report: bool = False,
        evaluation: Any = None,
    ) -> None:
        """Write the smaller network (safetensors) and the plan (JSON) into a folder.

        `interpress.load(folder, model)` turns a freshly built original into this network. With
        `report=True` a page to look at goes with them; see `report`.
        """
        page = report_page(self, evaluation) if report else None
        save_result(self, folder, overwrite, page)

    def report(
        self, path: str | os.PathLike[str], *, evaluation: Any = None, overwrite: bool = False
    ) -> None:
        """Write one self-contained HTML page: what was asked, what came out, and the evidence.

        `evaluation` are data of your own, with labels if you have them, as for
        `interpress.agreement`; without them, agreement is that of held-out calibration data.
        """
        storage.save_text(path, report_page(self, evaluation), overwrite=overwrite)

    def plot(self) -> Any:
        """The main figure, the trade-off with this result in it, as a Plotly figure."""
        return figure_of(self)

    def _repr_html_(self) -> str:
        return html_tables(self)

    def _headline(self) -> Table:
        table = Table(title=f"{self.method.name}, asked for {self.budget}", width=80)
        for column in ("", "original", "smaller", "left"):
            table.add_column(column, justify="left" if not column else "right")
        for label, unit in (("FLOPs per example", "flops"), ("parameters", "parameters")):
            a, b = getattr(self.before, unit), getattr(self.after, unit)
            table.add_row(label, f"{a:,}", f"{b:,}", f"{b / a:.1%}")
        if self.latency is not None:
            table.add_row("measured time", "1.00", f"{self.latency:.2f}", f"{self.latency:.1%}")
        if self.agreement is not None:
            table.caption = f"held out: {self.agreement}"
        return table

    def _table(self) -> Table:
        table = Table(width=80, caption=f"spaces that are frozen: {len(self.spaces.frozen)}")
        table.add_column("space", overflow="ellipsis", no_wrap=True)
        for column in ("before", "after", "kept", "error", "over SVD"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.plan:
            changed = row.after < row.before
            table.add_row(
                row.name,
                str(row.before),
                str(row.after),
                f"{row.after / row.before:.0%}",
                f"{row.error:.1%}" if changed else "",
                f"{row.ratio:.2f}" if changed else "",
            )
        return table


def _each(cost: Cost, spaces: Spaces) -> Cost:
    """A cost of the captured batch, per example."""
    count = captured_examples(spaces)
    return Cost(cost.flops // count, cost.parameters, cost.activation_bytes // count)

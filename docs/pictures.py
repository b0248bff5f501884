"""Draw the pictures of the documentation from the network of the demo.

Every picture is computed when the documentation is built, so that it shows what the current code
does.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

import interpress
from interpress import demo
from interpress.extend import measure_taps
from interpress.linalg import ColumnOrdering, FactorStream, order_by_pivoting

BUDGETS = (0.8, 0.65, 0.5, 0.3, 0.15)
SHOWN_BUDGET = 0.5
TAP_SPACE, KEPT = "features.3", 24  # the space and width of the picture of T
COLOURS = {"preserve": "#1f6feb", "iterative-id": "#111827", "largest weights": "#b35900"}
STYLES = {"preserve": "o-", "iterative-id": "x--", "largest weights": "o-"}
LABELS = {
    "preserve": "interpress (preserve)",
    "iterative-id": "the paper's method (iterative-id)",
    "largest weights": "largest weights kept, no correction",
}
GREY = "#d8dee8"


class TradeOff(NamedTuple):
    """What the methods reach on the test images, and the network that the first picture shows."""

    agreements: dict[str, list[float]]
    """Per method, the agreement in percent at every budget."""
    shown: interpress.Result


def draw_all(folder: Path) -> None:
    """Write every picture into a folder."""
    folder.mkdir(exist_ok=True)
    model, digits = demo.network(), demo.load_digits()
    ordering = _column_ordering(model, digits)
    _draw_interpolation(folder / "interpolation.svg", ordering)
    _draw_errors(folder / "errors.svg", ordering)
    _draw_overview(folder / "overview.svg", _trade_off(model, digits), len(digits.test[0]))


def _column_ordering(model: torch.nn.Module, digits: demo.Digits) -> ColumnOrdering:
    """Return the column-pivoted factorization of the activations of one space."""
    spaces = interpress.find_spaces(model, digits.calibration[:8])
    (tap,) = spaces[TAP_SPACE].taps
    Z = measure_taps(spaces, digits.calibration, [tap])[tap]
    return order_by_pivoting(FactorStream(Z.shape[1]).add(Z).factor())


def _trade_off(model: torch.nn.Module, digits: demo.Digits) -> TradeOff:
    """Compress to every budget and measure agreement on the test images."""
    analysis = interpress.analyze(model, digits.calibration)
    agreements: dict[str, list[float]] = {method: [] for method in COLOURS}
    shown = None
    for budget in BUDGETS:
        result = analysis.compress(flops=budget)
        networks = {
            "preserve": result.model,
            "iterative-id": analysis.compress(flops=budget, method="iterative-id").model,
            "largest weights": demo.by_magnitude(result),
        }
        for method, network in networks.items():
            agreements[method].append(
                100 * float(interpress.agreement(model, network, digits.test))
            )
        shown = result if budget == SHOWN_BUDGET else shown
    assert shown is not None
    return TradeOff(agreements, shown)


def _draw_overview(path: Path, trade_off: TradeOff, test_images: int) -> None:
    """Draw the network before and after, beside the agreement at every budget."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=(1, 1.25))
    _draw_widths(left, trade_off.shown)
    _draw_agreements(right, trade_off.agreements, test_images)
    _save(figure, path)


def _draw_widths(axes: Axes, result: interpress.Result) -> None:
    for row, space in enumerate(result.plan):
        axes.barh(row, space.before, color=GREY, height=0.62)
        axes.barh(row, space.after, color=COLOURS["preserve"], height=0.62)
        text = f"{space.before} → {space.after}"
        axes.text(space.before + 1.5, row, text, va="center", fontsize=10)
    names = [space.name for space in result.plan]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(space.before for space in result.plan))
    before, after = result.before.flops / 1e6, result.after.flops / 1e6
    axes.set_title(f"The network: {before:.2f} → {after:.2f} MFLOPs per image", fontsize=11)
    axes.set_xlabel("channels: original → compressed")
    _remove_frame(axes)


def _draw_agreements(axes: Axes, agreements: dict[str, list[float]], test_images: int) -> None:
    percent = [100 * budget for budget in BUDGETS]
    for method, values in agreements.items():
        axes.plot(percent, values, STYLES[method], color=COLOURS[method], label=LABELS[method])
    axes.axvline(100 * SHOWN_BUDGET, color="#5b6678", linewidth=0.8, linestyle=":")
    axes.invert_xaxis()
    axes.set_ylim(0, 103)
    axes.set_title("Its decisions: how many stay the same", fontsize=11)
    axes.set_xlabel("FLOPs left, % of the original")
    axes.set_ylabel(f"same decision, % of {test_images} images")
    axes.legend(loc="lower left", frameon=False)
    _remove_frame(axes)


def _draw_interpolation(path: Path, ordering: ColumnOrdering) -> None:
    """Draw `T` with the kept channels first."""
    interpolation = ordering.at_rank(KEPT)
    columns = torch.cat([interpolation.kept, ordering.order[KEPT:]])
    figure, axes = plt.subplots(figsize=(7, 3))
    image = axes.imshow(
        interpolation.T[:, columns].numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto"
    )
    axes.set(xlabel=f"all {ordering.n} channels, kept ones first", ylabel=f"{KEPT} kept channels")
    figure.colorbar(image, label="entry of T")
    _save(figure, path)


def _draw_errors(path: Path, ordering: ColumnOrdering) -> None:
    """Draw the error of the decomposition at every width, beside the error of the SVD."""
    norm = ordering.spectral_norm
    widths = range(1, ordering.n)
    errors = [ordering.at_rank(k).spectral_error / norm for k in widths]
    bounds = [ordering.svd_bound(k).spectral / norm for k in widths]
    figure, axes = plt.subplots(figsize=(7, 3))
    axes.semilogy(widths, errors, label="interpolative decomposition", color=COLOURS["preserve"])
    axes.semilogy(widths, bounds, "--", label="SVD (lower bound)", color="#5b6678")
    axes.set(xlabel="channels kept", ylabel="error, relative to the norm of Z")
    axes.legend(frameon=False)
    _remove_frame(axes)
    _save(figure, path)


def _remove_frame(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)

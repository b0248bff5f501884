"""The pictures of "How it works", made by the code they explain, from the network of the demo."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import interpress
from interpress import demo
from interpress.linalg import FactorStream
from interpress.linalg.pivoting import order_by_pivoting
from interpress.surgery.projection_identity import measure


def draw_all(folder: Path) -> None:
    """Write every picture."""
    folder.mkdir(exist_ok=True)
    model, digits = demo.network(), demo.load_digits()
    spaces = interpress.find_spaces(model, digits.calibration[:8])
    (tap,) = spaces["features.3"].taps
    Z = measure(spaces, digits.calibration, [tap])[tap]
    ordering = order_by_pivoting(FactorStream(Z.shape[1]).add(Z).factor())
    _matrix(folder / "interpolation.svg", ordering)
    _errors(folder / "errors.svg", ordering)
    _tradeoff(folder / "tradeoff.svg", model, digits)


def _matrix(path: Path, ordering: interpress.linalg.ordering.ColumnOrdering) -> None:
    found = ordering.at_rank(24)
    columns = torch.cat([found.kept, ordering.order[24:]])
    figure, axes = plt.subplots(figsize=(7, 3))
    shown = axes.imshow(found.T[:, columns].numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axes.set(xlabel="all 64 channels, kept ones first", ylabel="24 kept channels")
    figure.colorbar(shown, label="T")
    _save(figure, path)


def _errors(path: Path, ordering: interpress.linalg.ordering.ColumnOrdering) -> None:
    whole = ordering.spectral_norm
    ranks = range(1, ordering.n)
    ours = [ordering.at_rank(k).spectral_error / whole for k in ranks]
    best = [ordering.svd_bound(k).spectral / whole for k in ranks]
    figure, axes = plt.subplots(figsize=(7, 3))
    axes.semilogy(ranks, ours, label="kept channels and T")
    axes.semilogy(ranks, best, "--", label="SVD, the best there is")
    axes.set(xlabel="channels kept", ylabel="relative error")
    axes.legend()
    _save(figure, path)


def _tradeoff(path: Path, model: torch.nn.Module, digits: demo.Digits) -> None:
    analysis = interpress.analyze(model, digits.calibration)
    budgets = (0.8, 0.5, 0.3, 0.15)
    lines: dict[str, list[float]] = {"preserve": [], "iterative-id": [], "largest weights": []}
    for budget in budgets:
        for method in ("preserve", "iterative-id"):
            result = analysis.compress(flops=budget, method=method)
            lines[method].append(
                100 * float(interpress.agreement(model, result.model, digits.test))
            )
            if method == "preserve":
                other = interpress.agreement(model, demo.by_magnitude(result), digits.test)
                lines["largest weights"].append(100 * float(other))
    figure, axes = plt.subplots(figsize=(7, 3))
    for name, values in lines.items():
        axes.plot([100 * budget for budget in budgets], values, "o-", label=name)
    axes.set(xlabel="FLOPs left, %", ylabel="same decisions, %")
    axes.legend()
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)

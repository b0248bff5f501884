"""Plots of one style, as SVG files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#e08e45", "#3d3d3d", "#5fb3b3", "#b5838d")


@contextmanager
def figure(path: Path, columns: int = 1, width: float = 4.2, height: float = 4.0) -> Iterator[Any]:
    """Axes side by side, saved when done."""
    import matplotlib.pyplot as plt

    own, axes = plt.subplots(1, columns, figsize=(width * columns, height), squeeze=False)
    try:
        yield axes[0]
        for axis in axes[0]:
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.25, linewidth=0.5)
        own.tight_layout()
        own.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    finally:
        plt.close(own)


def legend_below(axis: Any, gap: float = 0.22) -> None:
    """What the lines are, where it hides none of them."""
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(-0.1, -gap), ncol=2, frameon=False)

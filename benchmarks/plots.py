"""Matplotlib figures in one style, saved as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#e08e45", "#3d3d3d", "#5fb3b3", "#b5838d")


@contextmanager
def figure(path: Path, columns: int = 1, width: float = 4.2, height: float = 4.0) -> Iterator[Any]:
    """Yield a row of axes; save the figure when the block ends."""
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(1, columns, figsize=(width * columns, height), squeeze=False)
    try:
        yield axes[0]
        for axis in axes[0]:
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.25, linewidth=0.5)
        drawing.tight_layout()
        drawing.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    finally:
        plt.close(drawing)


def legend_below(axis: Any, gap: float = 0.22) -> None:
    """Put the legend below the axis, where it covers no curve."""
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(-0.1, -gap), ncol=2, frameon=False)

"""Published figures of methods that train, as the paper quotes them.

They are not run here: they train the network with labels for many epochs. The figures are those of
the two tables of the main text of *Model Preserving Compression for Neural Networks* (Chee, Renz,
Damle, De Sa, NeurIPS 2022). They are of other networks than ours (the paper's VGG-16 for CIFAR-10,
and VGG-16 for ImageNet), so compare within a table.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.tables import table

CIFAR, IMAGENET = "VGG-16, CIFAR-10", "VGG-16, ImageNet"


class Published(NamedTuple):
    """One row of the paper's tables."""

    data: str
    method: str
    removed: int
    """FLOPs removed, in percent."""
    accuracy: float
    change: float
    """Accuracy of the original minus that of the smaller network, in points."""
    agreement: str
    """In percent, with the digits of the paper; empty where the paper has none."""
    epochs: int
    """Epochs of training with labels."""


FIGURES = (
    Published(CIFAR, "ID (the paper)", 50, 93.31, 0.30, "97.29", 60),
    Published(CIFAR, "ID, then LRank (the paper)", 50, 93.43, 0.31, "95.9", 0),
    Published(CIFAR, "Polar", 54, 93.92, 0.04, "", 200),
    Published(CIFAR, "an independently trained network", 0, 93.60, 0.0, "93.02", 160),
    Published(IMAGENET, "ID, then LRank (the paper)", 43, 68.84, 2.67, "85.66", 0),
    Published(IMAGENET, "ID, then LRank (the paper)", 43, 70.50, 1.01, "90.90", 10),
    Published(IMAGENET, "AMC", 48, 70.49, 0.65, "76.03", 120),
    Published(IMAGENET, "CP", 53, 68.20, 2.66, "78.47", 10),
)
"""The rows of AMC, Polar and CP, and the paper's own rows beside them."""


def markdown() -> str:
    """Return the published figures as a table."""
    lines = [
        [one.data, one.method, one.removed, f"{one.accuracy:.2f}",
         f"{one.change:.2f}" if one.removed else "",
         one.agreement or "not given", one.epochs]
        for one in FIGURES
    ]  # fmt: skip
    header = ["network and data", "method", "FLOPs removed, %", "accuracy, %",
              "accuracy lost, points", "agreement, %", "epochs of training"]  # fmt: skip
    return table(header, lines, text_columns=2)

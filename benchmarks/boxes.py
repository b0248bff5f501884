"""Compare the boxes that two detectors find on the same images."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.experiment import Row

Array = np.ndarray[Any, Any]

SCORE = 0.25
"""What detectors of the YOLO family call a detection."""


def compare_boxes(before: Array, after: Array) -> Row | None:
    """Return what becomes of the original's boxes; None if the output does not hold boxes.

    A box is the same if it is at the same place of the output, has the same class, and still a
    score that counts. This is in front of the selection of boxes that overlap.
    """
    if before.ndim != 3 or before.shape[1] < 5:
        return None
    scores = [output[:, 4:] for output in (before, after)]
    best = [score.max(1) >= SCORE for score in scores]
    both = best[0] & best[1] & (scores[0].argmax(1) == scores[1].argmax(1))
    boxes = [output[:, :4].transpose(0, 2, 1)[both] for output in (before, after)]
    shared = overlaps(*boxes)
    return {
        "before": int(best[0].sum()),
        "after": int(best[1].sum()),
        "both": int(both.sum()),
        "images": int(best[0].any(1).sum()),
        "overlap": float(np.median(shared)) if len(shared) else None,
    }


def overlaps(a: Array, b: Array) -> Array:
    """Return intersection over union of boxes (n, 4): their centres and sizes."""
    low = np.maximum(a[:, :2] - a[:, 2:] / 2, b[:, :2] - b[:, 2:] / 2)
    high = np.minimum(a[:, :2] + a[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2)
    common = np.clip(high - low, 0, None).prod(1)
    joint: Array = common / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - common)
    return joint

"""Everything that the page shows, as plain data. To add a column, add it here and in the template."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from interpress._version import __version__
from interpress.allocation.curve import Point
from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.agreement import agreement
from interpress.evaluation.tally import Agreement
from interpress.graph.example import Example
from interpress.pipeline.outcome import Outcome
from interpress.report.thumbnails import thumbnail

_MOST_THUMBNAILS = 24


def content_of(outcome: Outcome, evaluation: Any = None) -> dict[str, Any]:
    """What was asked, what came out, the evidence, and how it was made."""
    found, where = outcome.agreement, "held-out calibration data"
    if evaluation is not None:
        found = agreement(outcome.original, outcome.model, evaluation, progress=False)
        where = "evaluation data"
    return {
        "asked": str(outcome.budget),
        "method": {"name": outcome.method.name, **asdict(outcome.method)},
        "headline": _headline(outcome),
        "agreement": None if found is None else _agreement(found, where),
        "flips": [] if found is None else _flips(outcome, found, evaluation),
        "spaces": [
            {
                "name": row.name, "before": row.before, "after": row.after,
                "error": row.error, "bound": row.bound, "ratio": row.ratio,
            }
            for row in outcome.plan
        ],
        "frozen": [
            {"name": space.name, "size": space.size, "why": space.frozen}
            for space in outcome.spaces.frozen
        ],
        "curve": _curve(outcome),
        "made": _made(outcome),
    }  # fmt: skip


def _headline(outcome: Outcome) -> list[dict[str, Any]]:
    rows = [
        {
            "label": label,
            "before": getattr(outcome.before, unit),
            "after": getattr(outcome.after, unit),
        }
        for label, unit in (("FLOPs per example", "flops"), ("Parameters", "parameters"))
    ]
    if outcome.latency is not None:
        rows.append({"label": "Measured time, relative", "before": 1.0, "after": outcome.latency})
    return rows


def _agreement(found: Agreement, where: str) -> dict[str, Any]:
    return {
        "where": where,
        "share": found.agreement,
        "interval": found.interval,
        "decisions": found.decisions,
        "examples": found.examples,
        "divergence": found.divergence,
        "output_error": found.output_error,
        "accuracy": found.accuracy,
        "text": str(found),
        "classes": [asdict(row) for row in found.per_class],
        "flipped": len(found.flips),
    }


def _flips(outcome: Outcome, found: Agreement, evaluation: Any) -> list[dict[str, Any]]:
    """The first decisions that changed, with pictures where the inputs are some."""
    shown = [flip for flip in found.flips if not flip.position][:_MOST_THUMBNAILS]
    pictures = _pictures(outcome, {flip.index for flip in shown}, evaluation)
    return [
        {
            "index": flip.index, "before": flip.before, "after": flip.after,
            "label": flip.label, "picture": pictures.get(flip.index),
        }
        for flip in shown
    ]  # fmt: skip


def _pictures(outcome: Outcome, wanted: set[int], evaluation: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    start = 0
    for example in _examples(outcome, evaluation):
        if len(found) == len(wanted):
            break
        images = next(iter(example.tensors()), None)
        if images is None or not _are_images(images):
            return {}
        for index in sorted(wanted):
            if start <= index < start + len(images):
                found[index] = thumbnail(images[index - start])
        start += len(images)
    return found


def _examples(outcome: Outcome, evaluation: Any) -> Iterator[Example]:
    if evaluation is None:
        return outcome.study.require_data().gathered("held")
    source = CalibrationSet(evaluation, outcome.original)
    return (source.convert(raw, number) for number, raw in enumerate(source.raw()))


def _are_images(tensor: Tensor) -> bool:
    return tensor.ndim == 4 and tensor.shape[1] in (1, 3) and tensor.is_floating_point()


def _curve(outcome: Outcome) -> dict[str, Any]:
    """The trade-off for the slider: widths and errors come from the nested factorizations."""
    with_errors = {name: order.errors.clamp(min=0).sqrt() for name, order in outcome.orders.items()}
    points = outcome.curve
    own = outcome.point
    shares = predicted_agreement(outcome, points)
    return {
        "points": [
            {
                "flops": point.flops,
                "params": point.params,
                "agreement": share,
                "widths": [point.widths[row.name] for row in outcome.plan],
                "errors": [
                    round(float(with_errors[row.name][point.widths[row.name]]), 5)
                    for row in outcome.plan
                ],
            }
            for point, share in zip(points, shares, strict=True)
        ],
        "at": min(range(len(points)), key=lambda i: abs(points[i].flops - own.flops)),
    }


def predicted_agreement(outcome: Outcome, points: list[Point]) -> list[float | None]:
    """Agreement along the curve, scaled through the one point where it was measured.

    Errors flip the decisions whose margin they exceed, so that the share that flips grows as the
    size of the error relative to what is left of the signal.
    """
    found = outcome.agreement
    if found is None or found.agreement is None or found.decisions == 0:
        return [None] * len(points)
    orders = outcome.orders

    def noise(widths: Mapping[str, int]) -> float:
        lost = [float(orders[name].errors[width].clamp(0, 0.999)) for name, width in widths.items()]
        return math.sqrt(sum(share / (1 - share) for share in lost))

    flipped = max(1 - found.agreement, 0.5 / found.decisions)
    here = max(noise(outcome.widths), 1e-9)
    return [max(0.0, 1 - flipped * noise(point.widths) / here) for point in points]


def _made(outcome: Outcome) -> dict[str, str]:
    data, examples = outcome.study.data, outcome.study.statistics.examples
    return {
        "interpress": __version__,
        "torch": str(torch.__version__),
        "Python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "seed": str(outcome.seed),
        "calibration": "none"
        if data is None
        else f"{examples} examples fitted, fingerprint {data.fingerprint()}",
        "projection identity": f"holds to {outcome.network.proof.difference:.1e}",
        "refit": "kept" if outcome.network.refit_kept else "not used",
    }

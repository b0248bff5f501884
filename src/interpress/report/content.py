"""Everything that the page shows, as plain data.

A new column per space starts as a field of `SpacePlan` in `pipeline/outcome.py`. Then add it here,
to the header and the row in `assets/report.html`, and to `html_tables` in `report/page.py` for
notebooks.
"""

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
    """Return what was asked, what came out, the evidence, and how it was made."""
    measured, where = outcome.agreement, outcome.judged_on.removeprefix("on ")
    if evaluation is not None:
        meaning = outcome.study.meaning
        measured = agreement(
            outcome.study.original, outcome.network.model, evaluation,
            forward=outcome.options.forward, mask=outcome.options.mask,
            kind=meaning.kind, output=meaning.output, progress=False,
        )  # fmt: skip
        where = "evaluation data"
    return {
        "asked": str(outcome.budget),
        "method": {"name": outcome.method.name, **asdict(outcome.method)},
        "headline": _headline(outcome),
        "agreement": None
        if measured is None
        else _agreement(measured, where, (*measured.notes, *outcome.notes)),
        "flips": [] if measured is None else _flips(outcome, measured, evaluation),
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
        "thin": _thin(outcome),
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
    if (latency := outcome.measured_latency) is not None:
        rows.append({"label": "Measured run time, relative", "before": 1.0, "after": latency})
    return rows


def _agreement(measured: Agreement, where: str, notes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "where": where,
        "share": measured.agreement,
        "interval": measured.interval,
        "decisions": measured.decisions,
        "examples": measured.examples,
        "divergence": measured.divergence,
        "output_error": measured.output_error,
        "accuracy": measured.accuracy,
        "output": measured.output,
        "others": [output.record() for output in measured.others],
        "text": str(measured),
        "notes": notes,
        "tokens": None if measured.tokens is None else asdict(measured.tokens),
        "classes": [asdict(row) for row in measured.per_class],
        "flipped": len(measured.flips),
    }


def _flips(outcome: Outcome, measured: Agreement, evaluation: Any) -> list[dict[str, Any]]:
    """Return the first decisions that changed, with thumbnails if the inputs are images."""
    shown = [flip for flip in measured.flips if not flip.position][:_MOST_THUMBNAILS]
    thumbnails = _thumbnails(outcome, {flip.index for flip in shown}, evaluation)
    return [
        {
            "index": flip.index, "before": flip.before, "after": flip.after,
            "label": flip.label, "picture": thumbnails.get(flip.index),
        }
        for flip in shown
    ]  # fmt: skip


def _thumbnails(outcome: Outcome, wanted: set[int], evaluation: Any) -> dict[int, str]:
    thumbnails: dict[int, str] = {}
    start = 0
    for example in _examples(outcome, evaluation):
        if len(thumbnails) == len(wanted):
            break
        images = next(iter(example.tensors()), None)
        if images is None or not _are_images(images):
            return {}
        for index in sorted(wanted):
            if start <= index < start + len(images):
                thumbnails[index] = thumbnail(images[index - start])
        start += len(images)
    return thumbnails


def _examples(outcome: Outcome, evaluation: Any) -> Iterator[Example]:
    if evaluation is None:
        return outcome.study.require_data().gathered("held")
    source = CalibrationSet(evaluation, outcome.study.original, forward=outcome.options.forward)
    return (source.convert(raw, number) for number, raw in enumerate(source.raw()))


def _are_images(tensor: Tensor) -> bool:
    return tensor.ndim == 4 and tensor.shape[1] in (1, 3) and tensor.is_floating_point()


def _curve(outcome: Outcome) -> dict[str, Any]:
    """Return the trade-off for the slider: widths and errors at every point of the curve."""
    errors = {name: order.errors.clamp(min=0).sqrt() for name, order in outcome.orders.items()}
    points = outcome.curve
    flops = outcome.point.flops
    shares = predicted_agreement(outcome, points)
    return {
        "points": [
            {
                "flops": point.flops,
                "params": point.params,
                "agreement": share,
                "widths": [point.widths[row.name] for row in outcome.plan],
                "errors": [
                    round(float(errors[row.name][point.widths[row.name]]), 5)
                    for row in outcome.plan
                ],
            }
            for point, share in zip(points, shares, strict=True)
        ],
        "at": min(range(len(points)), key=lambda i: abs(points[i].flops - flops)),
    }


def predicted_agreement(outcome: Outcome, points: list[Point]) -> list[float | None]:
    """Return predicted agreement along the curve, scaled to pass through the measured point.

    An error flips the decisions whose margin it exceeds, so the fraction of flipped decisions is
    taken to be proportional to the noise-to-signal ratio.
    """
    measured = outcome.agreement
    if outcome.ranks:  # the curve is that of dropped channels only
        return [None] * len(points)
    if measured is None or measured.agreement is None or measured.decisions == 0:
        return [None] * len(points)
    orders = outcome.orders

    def noise(widths: Mapping[str, int]) -> float:
        errors = [
            float(orders[name].errors[width].clamp(0, 0.999)) for name, width in widths.items()
        ]
        return math.sqrt(sum(share / (1 - share) for share in errors))

    flipped = max(1 - measured.agreement, 0.5 / measured.decisions)
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
        **_made_thin(outcome),
        "refit": "kept" if outcome.network.refit_kept else "not used",
    }


def _thin(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the layers that became two."""
    low_rank = outcome.network.low_rank
    return [
        {
            "name": pair.name, "inputs": pair.inputs, "outputs": pair.outputs,
            "rank": pair.rank, "share": pair.share,
        }
        for pair in (() if low_rank is None else low_rank.pairs)
    ]  # fmt: skip


def _made_thin(outcome: Outcome) -> dict[str, str]:
    low_rank = outcome.network.low_rank
    if low_rank is None or low_rank.proof is None:
        return {}
    return {"product identity": f"holds to {low_rank.proof.difference:.1e}"}

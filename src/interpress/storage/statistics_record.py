"""Statistics as tensors and plain records, to write to a file and to read back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.calibration.row_weights import RowWeights
from interpress.calibration.sample_weights import TopClasses
from interpress.calibration.sensitivity import Sensitivity
from interpress.calibration.statistics import PatchMoments, Statistics
from interpress.linalg.factor import RFactor

Record = dict[str, Any]


def to_record(statistics: Statistics) -> tuple[dict[str, Tensor], Record]:
    """Return the tensors of some statistics, by name, and the numbers beside them."""
    tensors: dict[str, Tensor] = {}
    halves, moments = {}, {}
    for name, half in statistics.halves.items():
        factor = half.factor
        form = "gram" if factor.root is None else "root"
        tensors[f"{form}:{name}"] = getattr(factor, form)
        tensors[f"second:{name}"], tensors[f"totals:{name}"] = half.second, half.totals
        if half.local is not None:
            tensors[f"local:{name}"] = half.local
        halves[name] = [form, factor.rows, factor.floor, list(half.rows)]
    for name, patches in statistics.moments.items():
        if patches.origin is not None:  # else they are those of the tap
            tensors[f"patches:{name}"], tensors[f"origin:{name}"] = patches.grams, patches.origin
            tensors[f"sums:{name}"] = patches.totals
        if patches.basis is not None:
            tensors[f"basis:{name}"] = patches.basis
        if patches.dual is not None:
            tensors[f"dual:{name}"] = patches.dual
        moments[name] = patches.rows
    for name, sensitivity in statistics.sensitivities.items():
        tensors[f"sensitivity:{name}"] = sensitivity.root
        if sensitivity.row_weights is not None:
            tensors[f"row weights:{name}"] = sensitivity.row_weights.by_class
    if statistics.top_classes is not None:
        tensors["classes"] = statistics.top_classes.classes
        tensors["probabilities"] = statistics.top_classes.probabilities
    return tensors, {
        "examples": statistics.examples,
        "halves": halves,
        "output_variances": statistics.output_variances,
        "moments": moments,
        "data": statistics.data,
        "sensitivities": {
            name: [one.rows, one.of_consumer] for name, one in statistics.sensitivities.items()
        },
    }


def from_record(tensors: dict[str, Tensor], record: Record, device: torch.device) -> Statistics:
    """Return the statistics; raise KeyError, ValueError or TypeError if something is missing."""

    def read(kind: str, name: str) -> Tensor | None:
        return tensors[f"{kind}:{name}"].to(device) if f"{kind}:{name}" in tensors else None

    def need(kind: str, name: str) -> Tensor:
        return tensors[f"{kind}:{name}"].to(device)

    halves = {}
    for name, (form, rows, floor, per_half) in record["halves"].items():
        factor = RFactor(rows, floor, **{form: need(form, name)})
        second, totals = need("second", name), need("totals", name)
        first_rows, second_rows = per_half
        halves[name] = Halves(
            factor, second, totals, (int(first_rows), int(second_rows)), read("local", name)
        )
    moments = {}
    for name, rows in record["moments"].items():
        origin = read("origin", name)
        if origin is None:
            moments[name] = PatchMoments.of_rows(halves[name])
        else:
            grams, totals = need("patches", name), need("sums", name)
            basis, dual = read("basis", name), read("dual", name)
            moments[name] = PatchMoments(grams, totals, list(rows), origin, basis, dual)
    top_classes = None
    if "classes" in tensors:
        top_classes = TopClasses(tensors["classes"], tensors["probabilities"])
    sensitivities = {}
    for name, (rows, of_consumer) in record["sensitivities"].items():
        by_class = tensors.get(f"row weights:{name}")
        row_weights = None if by_class is None else RowWeights(by_class)
        root = tensors[f"sensitivity:{name}"]
        sensitivities[name] = Sensitivity(root, int(rows), bool(of_consumer), row_weights)
    return Statistics(
        halves,
        dict(record["output_variances"]),
        moments,
        int(record["examples"]),
        top_classes,
        str(record.get("data", "")),
        sensitivities,
    )

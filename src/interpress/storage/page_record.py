"""What `plan.json` holds for the report alone: hashes, costs, and the predicted trade-off."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import nn

from interpress.allocation.curve import Point
from interpress.data.example_hashes import as_text, hashes_of
from interpress.method import METHODS, Method
from interpress.onnx_files.source import source_of
from interpress.pipeline.options import Options
from interpress.pipeline.outcome import Outcome, groups_of
from interpress.refit.layer_pair import kept_outputs
from interpress.selection.units import units_of
from interpress.spaces.batching import captured_examples
from interpress.spaces.channel_space import ChannelSpace
from interpress.storage.architecture import digest_of
from interpress.storage.evidence import finite

_BUILT_BY = ("exclude", "kind", "output", "mask", "forward", "memory", "device", "lowrank")
"""Options that are named if they differ from their defaults."""
_SAME_POINT = 1e-3  # of the FLOPs: a point of the curve as near as this is the result itself
_LIMITS = ("round_to", "min_width", "same_widths")


def page_record(outcome: Outcome, *, measure: bool) -> dict[str, Any]:
    """Return everything that the page shows and no other part of the plan says.

    `measure` adds what differs between two runs, or takes time: run time and memory, the hash of
    the data, the date.
    """
    run = outcome.run_cost if measure else None
    record: dict[str, Any] = {
        "model": _model(outcome.original),
        "call": outcome.options.command or call_of(outcome.options, outcome.seed),
        "digests": {
            "original": digest_of(outcome.original),
            "smaller": digest_of(outcome.model),
        },
        "data": _data(outcome, measure),
        "bytes": [tensor_bytes(outcome.original), tensor_bytes(outcome.model)],
        "activation_bytes": [outcome.before.activation_bytes, outcome.after.activation_bytes],
        "run": None if run is None else run.record(),
        "latency": outcome.measured_latency,
        "as_built": outcome.options.as_built,
        "weights_file": outcome.options.weights_file,
        "unchanged": unchanged_tensors(outcome.original, outcome.model),
        "untrusted": {
            name: reason for name, reason in outcome.orders.untrusted.items()
            if name not in outcome.network.plan.kept
        },
        "frozen": [asdict(share) for share in outcome.spaces.frozen_shares()],
        "curve": curve_record(outcome),
        "widths": widths_record(outcome),
        "thin": _thin(outcome),
        "warnings": list(outcome.network.warnings),
        "made": {
            "Python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            **({"date": datetime.date.today().isoformat()} if measure else {}),
        },
    }  # fmt: skip
    return finite(record)


def _model(original: nn.Module) -> dict[str, str]:
    file = source_of(original)
    return {
        "name": type(original).__name__,
        "source": str(getattr(original, "name_or_path", "") or ""),
        "onnx": "" if file is None else file.name,
    }


def unchanged_tensors(original: nn.Module, smaller: nn.Module) -> dict[str, Any] | None:
    """Return the names of the parameters with the same values in both networks, and of how many.

    None if weights of the original are on the disk.
    """
    named = dict(original.named_parameters())
    if any(weight.is_meta for weight in named.values()):
        return None
    parameters = dict(smaller.named_parameters())
    same = [
        name
        for name, weight in parameters.items()
        if name in named
        and named[name].shape == weight.shape
        and torch.equal(named[name].to(weight.device), weight)
    ]
    return {"of": len(parameters), "names": same}


def tensor_bytes(model: nn.Module) -> int:
    """Return the bytes of all parameters and buffers; shared ones count once."""
    return sum(
        tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()]
    )


def call_of(options: Options, seed: int) -> str:
    """Return the call of `interpress.compress` that these options stand for."""
    defaults, method = Options(), options.method
    parts = [] if options.budget is None else [f"{options.budget.kind}={options.budget.value:g}"]
    if method != METHODS["preserve"]:
        parts.append(f"method={_method_text(method)}")
    for source, usual, names in (
        (options, defaults, _BUILT_BY),
        (options.limits, defaults.limits, _LIMITS),
    ):
        for name in names:
            value = getattr(source, name)
            if value != getattr(usual, name):
                shown = getattr(value, "__name__", "...") if callable(value) else repr(value)
                parts.append(f"{name}={shown}")
    if options.distill is not None:
        parts.append("distill=True")
    return f"interpress.compress(model, data, {', '.join([*parts, f'seed={seed}'])})"


def _method_text(method: Method) -> str:
    if method.name in METHODS:
        return repr(method.name)
    changed = [
        f"{part.name}={getattr(method, part.name)!r}"
        for part in fields(method)
        if getattr(method, part.name) != part.default
    ]
    return f"Method({', '.join(changed)})"


def _data(outcome: Outcome, measure: bool) -> dict[str, Any]:
    """Return how many examples there were, and hashes of them; no example."""
    data, study = outcome.study.data, outcome.study
    example = study.spaces.program.example
    inputs = [
        f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape[1:])}"
        for tensor in example.tensors()
        if tensor.ndim
    ]
    held = outcome.agreement is not None and data is not None and data.holds_out
    hashes = hashes_of(data) if data is not None and measure else None
    return {
        "fitted": study.statistics.examples,
        "held_out": outcome.agreement.examples if held and outcome.agreement else 0,
        "fingerprint": study.statistics.data,
        "sha256": data.digest() if data is not None and measure else None,
        "distinct": None if hashes is None else len(set(hashes)),
        "hashes": None if hashes is None else as_text(hashes),
        "inputs": inputs,
        "captured": captured_examples(outcome.spaces),
    }


def widths_record(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the width of every space before and after."""
    left = {row.name: row.after for row in outcome.plan}
    return [
        {
            "name": space.name, "before": space.size, "frozen": space.frozen is not None,
            "after": left[space.name] if space.name in left else width_of_frozen(outcome, space),
        }
        for space in outcome.spaces
    ]  # fmt: skip


def width_of_frozen(outcome: Outcome, space: ChannelSpace) -> int:
    """Return how many channels of a frozen space are left.

    They are all, unless they belong to attention heads that were dropped as a whole.
    """
    cut, trace = outcome.network.cut, outcome.spaces.trace
    for name in space.producers:
        for labelling in trace.weights[name].channels():
            if len(labelling.support) != 1:
                continue
            channels = units_of(outcome.spaces, space, labelling.labels.reshape(-1))
            if bool((channels >= 0).all()):  # every output of the layer is one of this space
                kept = kept_outputs(cut, name, labelling.support[0])
                return space.size if kept is None else len(channels[kept].unique())
    return space.size


def curve_record(outcome: Outcome) -> dict[str, Any]:
    """Return the predicted trade-off: costs, noise and widths at every point.

    `noise` is the predicted noise-to-signal ratio of the whole network, relative to that of the
    curve at the FLOPs of this result. The result itself is the point number `at`; its widths may
    come from another allocation than those of the curve.
    """
    flops = outcome.point.flops
    here = max(_noise_at(outcome, flops), 1e-9)
    points = [point for point in outcome.curve if abs(point.flops - flops) > _SAME_POINT]
    at = sum(point.flops > flops for point in points)
    record = [_curve_point(outcome, point, here) for point in points]
    result = {
        "flops": flops, "params": outcome.point.params, "noise": 1.0,
        "widths": [row.after for row in outcome.plan],
    }  # fmt: skip
    return {"points": [*record[:at], result, *record[at:]], "at": at}


def _noise_at(outcome: Outcome, flops: float) -> float:
    """Return the noise of the curve at a fraction of the FLOPs, between its points."""
    points = sorted(outcome.curve, key=lambda point: point.flops)
    above = next((point for point in points if point.flops >= flops), points[-1])
    below = next((point for point in reversed(points) if point.flops <= flops), points[0])
    low, high = (noise(outcome, point.widths) for point in (below, above))
    distance = above.flops - below.flops
    share = (flops - below.flops) / distance if distance > 0 else 0.0
    return low + (high - low) * min(max(share, 0.0), 1.0)


def _curve_point(outcome: Outcome, point: Point, here: float) -> dict[str, Any]:
    # a space that must stay whole, as with same_widths, is not in the curve
    widths = {
        row.name: point.widths.get(row.name, outcome.spaces[row.name].size) for row in outcome.plan
    }
    return {
        "flops": point.flops,
        "params": point.params,
        "noise": noise(outcome, point.widths) / here,
        "widths": [
            _with_groups(outcome, name, width, point.widths) for name, width in widths.items()
        ],
    }


def _with_groups(outcome: Outcome, name: str, width: int, widths: Mapping[str, int]) -> int:
    """Return how many heads of a space are left where groups of them go as well."""
    groups = groups_of(outcome.spaces[name], outcome.spaces)
    if groups is None:
        return width
    return width * widths.get(groups.name, groups.size) // groups.size


def noise(outcome: Outcome, widths: Mapping[str, int]) -> float:
    """Return the predicted noise-to-signal ratio of the errors of all spaces together."""
    shares = [
        float(outcome.orders[name].errors[width].clamp(0, 0.999)) for name, width in widths.items()
    ]
    return math.sqrt(sum(share / (1 - share) for share in shares))


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

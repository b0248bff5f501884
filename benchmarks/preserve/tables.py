"""The Markdown table of every measurement, with units."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.experiment import Row
from benchmarks.tables import network_title, table

_FLOPS = "FLOPs, fraction of the original"
_LATENCY = "run time, fraction of the original"

COLUMNS: dict[str, dict[str, str]] = {
    "cost": {
        "network": "network",
        "forward": "forward pass, s",
        "finding": "finding spaces, multiple",
        "constant-id": "constant-id, multiple",
        "iterative-id": "iterative-id, multiple",
        "preserve": "preserve, multiple",
        "seconds in all": "preserve with finding spaces, s",
    },
    "loop": {
        "network": "network",
        "one pass, s": "one pass, s",
        "one pass, agreement": "one pass, agreement in %",
        "literal loop, s": "literal loop, s",
        "literal loop, agreement": "literal loop, agreement in %",
        "times faster": "time of the loop / time of one pass",
    },
    "latency": {
        "network": "network",
        "batch": "batch size, images",
        "round_to": "round_to",
        "latency": _LATENCY,
        "flops": _FLOPS,
        "agreement": "agreement, %",
    },
    "budgets": {
        "network": "network",
        "budget": "budget",
        "asked": "requested",
        "params": "parameters, fraction of the original",
        "latency": _LATENCY,
        "flops": _FLOPS,
        "agreement": "agreement, %",
        "divergence": "KL divergence, nats",
    },
    "distill": {
        "network": "network",
        "method": "method",
        "asked": _FLOPS,
        "calibration": "images from",
        "minutes": "minutes",
        "runs": "seeds",
        "before": "agreement before, %",
        "agreement": "agreement after, %",
        "steps": "steps",
    },
    "tried": {
        "network": "network",
        "variant": "variant",
        "asked": _FLOPS,
        "runs": "seeds",
        "before": "agreement before, %",
        "gain before": "gain before, points",
        "agreement": "agreement after, %",
        "gain": "gain after, points",
        "steps": "steps",
    },
    "memory": {
        "network": "network",
        "1000": "1,000 images, MiB",
        "10000": "10,000 images, MiB",
    },
}
"""Per measurement, the keys of its rows and their headings."""

TITLES = {
    "feature-matching": "feature matching",
    "features-first": "features first",
    "block-wise": "block-wise reconstruction first",
    "re-allocated": "re-allocated",
    "looks-ahead": "looks ahead (predictions)",
    "selects-ahead": "looks ahead (predictions), same widths",
    "looks-ahead-scores": "looks ahead (scores)",
    "selects-ahead-scores": "looks ahead (scores), same widths",
    "several-splits": "several splits",
}
"""The variants of `tried` as the table calls them."""


def markdown(measurement: str, report: Row) -> str:
    """Return the table of one measurement."""
    rows = report["rows"]
    if measurement in ("agreement", "parts"):
        return _agreement_table(rows)
    if measurement == "distill":
        rows = _means_over_seeds(rows)
    if measurement == "tried":
        rows = _tried_over_seeds(rows)
    columns = COLUMNS[measurement]
    lines = [[_cell(key, row.get(key)) for key in columns] for row in rows]
    text_columns = 2 if measurement in ("budgets", "distill", "tried") else 1
    return table(list(columns.values()), lines, text_columns=text_columns)


def _cell(key: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    if key == "network":
        return network_title(str(value))
    return "" if value is None else str(value)


def _agreement_table(rows: list[Row]) -> str:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    agreements: dict[tuple[float, str, str], dict[str, list[float]]] = {}
    for row in rows:
        key = (row["asked"], row["method"], row.get("calibration", "test"))
        agreements.setdefault(key, {}).setdefault(row["network"], []).append(row["agreement"])
    lines = []
    for key in sorted(agreements, key=lambda key: -key[0]):
        asked, method, source = key
        label = method if source == "test" else f"{method}, calibrated on training images"
        cells = [_mean_with_deviation(agreements[key].get(network, [])) for network in networks]
        lines.append([label, f"{asked:g}", *cells])
    titles = [f"{network_title(network)}, %" for network in networks]
    return table(["method", _FLOPS, *titles], lines)


def _means_over_seeds(rows: list[Row]) -> list[Row]:
    """Return one row for all seeds of a run, with means and standard deviations."""
    about = ("network", "method", "asked", "calibration", "minutes")
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in about), []).append(row)
    return [
        {
            **dict(zip(about, key, strict=True)),
            "runs": len(group),
            "before": _mean_with_deviation([row["before"] for row in group]),
            "agreement": _mean_with_deviation([row["agreement"] for row in group]),
            "steps": round(statistics.mean(row["steps"] for row in group)),
        }
        for key, group in groups.items()
    ]


def _tried_over_seeds(rows: list[Row]) -> list[Row]:
    """Return one row per variant, with means and standard deviations over seeds."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = (row["network"], row["asked"], row["variant"])
        groups.setdefault(key, []).append(row)
    return [_variant_over_seeds(group) for group in groups.values()]


def _variant_over_seeds(group: list[Row]) -> Row:
    first, done = group[0], [row for row in group if "failed" not in row]
    variant = first["variant"]
    line: Row = {
        "network": first["network"],
        "variant": TITLES.get(variant, variant),
        "asked": first["asked"],
        "runs": len(done),
    }
    if not done:
        return {**line, "before": "failed"}
    for name in ("before", "agreement"):
        line[name] = _mean_with_deviation([row[name] for row in done])
    for name in ("gain before", "gain"):
        gains = [row[name] for row in done if name in row]
        line[name] = "" if variant == "released" else _gain(gains)
    return {**line, "steps": round(statistics.mean(row["steps"] for row in done))}


def _gain(gains: list[list[float]]) -> str:
    """Return the mean gain over the released variant, with its standard error over images."""
    if not gains:
        return ""
    mean = statistics.mean(gain for gain, _ in gains)
    error = sum(error**2 for _, error in gains) ** 0.5 / len(gains)
    return f"{mean:+.2f} ± {error:.2f}"


def _mean_with_deviation(values: Sequence[float]) -> str:
    if not values:
        return ""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"

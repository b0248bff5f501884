"""What `plan.json` says about agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from interpress.evaluation.tally import Agreement

_MOST_CLASSES = 1000  # of which a file has a row each


def evidence(
    agreement: Agreement | None, judged_on: str, notes: Sequence[str]
) -> dict[str, Any] | None:
    """Return a measured agreement as plain data; it holds no example."""
    if agreement is None:
        return None
    names = (
        "kind", "examples", "decisions", "agreement", "interval", "divergence", "output_error",
        "accuracy", "confidence",
    )  # fmt: skip
    numbers = {name: getattr(agreement, name) for name in names}
    numbers["turned"] = agreement.turned
    numbers["output"] = agreement.output
    numbers["others"] = [output.record() for output in agreement.others]
    numbers["tokens"] = None if agreement.tokens is None else asdict(agreement.tokens)
    rows = agreement.per_class
    numbers["classes"] = [asdict(row) for row in rows] if len(rows) <= _MOST_CLASSES else []
    numbers["text"] = str(agreement)
    numbers["scores"] = list(agreement.notes)
    numbers["notes"] = list(notes)
    return {"on": judged_on, **finite(numbers), "flipped": len(agreement.flips)}


def finite(value: Any) -> Any:
    """Return a value with None for the numbers that JSON cannot say."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

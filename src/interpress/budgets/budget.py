"""What was asked for: one number of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from interpress.checks import is_number
from interpress.errors import ArgumentError

BudgetKind = Literal["flops", "params", "latency", "agreement", "error", "width"]

MEANING: dict[str, str] = {
    "flops": "the fraction of FLOPs to keep, as in flops=0.5",
    "params": "the fraction of parameters to keep, as in params=0.5",
    "latency": "the fraction of the measured time to keep, as in latency=0.5",
    "agreement": "the least agreement with the original on held-out data, as in agreement=0.99",
    "error": "the largest relative error per layer, certified, as in error=0.1",
    "width": "the fraction of every layer's channels to keep, as in width=0.7",
}


@dataclass(frozen=True)
class Budget:
    """One budget."""

    kind: BudgetKind
    value: float

    @classmethod
    def of(cls, given: Mapping[str, float | None]) -> Budget:
        """The one that was given, checked."""
        named = {kind: value for kind, value in given.items() if value is not None}
        if len(named) != 1:
            got = " and ".join(f"{kind}={value!r}" for kind, value in named.items()) or "none"
            raise ArgumentError(f"give exactly one budget of {', '.join(MEANING)}; got {got}")
        ((kind, value),) = named.items()
        if not is_number(value) or not 0 < value <= 1 or (value == 1 and kind == "error"):
            raise ArgumentError(
                f"{kind}={value!r} is out of range; give a number above 0 and "
                f"{'below' if kind == 'error' else 'at most'} 1: {MEANING[kind]}"
            )
        return cls(kind, float(value))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.kind}={self.value:g}"

"""`Budget`: what a user asked for, one number of one kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from interpress.budgets.registry import BUDGETS, BudgetRule
from interpress.checks import is_number
from interpress.errors import ArgumentError


@dataclass(frozen=True)
class Budget:
    """A number, and the kind of budget it is for."""

    kind: str
    value: float

    def __post_init__(self) -> None:
        rule, value = self.rule, self.value
        if not is_number(value):
            raise ArgumentError(
                f"{self.kind}={value!r} is not a number; give the {rule.meaning}, such as "
                f"{self.kind}={rule.example:g}"
            )
        if rule.above_one:
            if not 1 <= value < math.inf:
                raise ArgumentError(
                    f"{self.kind}={value!r} is out of range; give a number of at least 1, the "
                    f"{rule.meaning}, such as {self.kind}={rule.example:g}"
                )
        elif not 0 < value <= 1 or (value == 1 and rule.below_one):
            raise ArgumentError(
                f"{self.kind}={value!r} is out of range; give a number above 0 and "
                f"{'below' if rule.below_one else 'at most'} 1, the {rule.meaning}, such as "
                f"{self.kind}={rule.example:g}"
            )

    @property
    def rule(self) -> BudgetRule:
        """How such a budget is met."""
        return BUDGETS[self.kind]

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, float | None]) -> Budget:
        """Return the one budget among a user's keyword arguments; None means not given."""
        given = {kind: value for kind, value in arguments.items() if value is not None}
        for name in given:
            if name not in BUDGETS:
                raise ArgumentError(
                    f"{name}= is not an argument of compress; the budgets are {', '.join(BUDGETS)}"
                )
        if len(given) != 1:
            got = " and ".join(f"{kind}={value!r}" for kind, value in given.items()) or "none"
            raise ArgumentError(f"give exactly one budget of {', '.join(BUDGETS)}; got {got}")
        ((kind, value),) = given.items()
        return cls(kind, value)

    def __str__(self) -> str:
        return f"{self.kind}={self.value:g}"

"""`Method`: how a network is compressed, as opposed to how far."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from interpress.allocation.registry import ALLOCATIONS
from interpress.checks import is_number
from interpress.errors import ArgumentError
from interpress.selection.registry import SELECTIONS

BEST = "best"
"""The `allocation=` that compares several."""
CANDIDATES = ("measured", "halfway", "marginal", "constant", "heads-per-group", "heads-last")
"""The allocations it compares. The first is used where none can be compared."""


@dataclass(frozen=True)
class Method:
    """How a network is compressed. The defaults are those of `method="preserve"`.

    `Method(refit=False)` is "preserve" without the refit.
    `Method.named("iterative-id", refit=True)` changes one part of another named method.
    """

    selection: str = "patches"
    """Which channels of a space stay: a name from `interpress.extend.SELECTIONS`."""
    allocation: str = BEST
    """How wide every space becomes: a name from `interpress.extend.ALLOCATIONS`, or "best": the one
    of "measured", "halfway", "marginal", "constant", "heads-per-group" and "heads-last" that loses
    least on held-out examples."""
    refit: bool = True
    """Whether every dense layer is re-solved by least squares after the cut."""
    correct: bool = True
    """Whether consumers absorb `T`. Without it they lose the dropped channels, as in most pruning
    methods."""
    regularize: bool = True
    """Whether `T` is regularised where rows are few. Without it, `T` is plain least squares, as in
    the paper; it may then fit noise."""
    balance: bool = True
    """Whether examples of rarely predicted classes get more weight in the refit."""
    step: float = 0.05
    """The fraction of a layer that one step of the allocation "iterative" cuts."""
    recompute: bool = False
    """Whether activations are measured again after every step: the literal Algorithm 2 of the
    paper. Only for the parts of "iterative-id" and a `flops=` budget."""

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            SELECTIONS[self.selection]  # raises, and lists the known names
        if self.allocation not in (*ALLOCATIONS, BEST):
            raise ArgumentError(
                f"allocation={self.allocation!r} is not known; choose one of "
                f"{', '.join(sorted([*ALLOCATIONS, BEST]))}"
            )
        if not is_number(self.step) or not 0 < self.step < 1:
            raise ArgumentError(
                f"step={self.step!r}; give the fraction of a layer to cut at a time, such as 0.05"
            )
        for name in ("refit", "correct", "regularize", "balance", "recompute"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name}={getattr(self, name)!r}; give True or False")

    @classmethod
    def named(cls, name: str, **changes: Any) -> Method:
        """Return a named method with some parts changed."""
        if name not in METHODS:
            raise ArgumentError(f"method={name!r} is not known; choose one of {', '.join(METHODS)}")
        known = [part.name for part in fields(cls)]
        for part in changes:
            if part not in known:
                raise ArgumentError(f"a method has no {part!r}; its parts are {', '.join(known)}")
        return replace(METHODS[name], **changes)

    @property
    def needs_trust(self) -> bool:
        """Whether enough rows must describe a space: `T` is used, and not as in the paper."""
        return self.correct and self.regularize and not self.recompute

    @property
    def candidates(self) -> tuple[str, ...]:
        """The allocations to compare: one, unless the best is asked for."""
        return CANDIDATES if self.allocation == BEST else (self.allocation,)

    @property
    def name(self) -> str:
        """The name of this method, or of its parts if it has no name."""
        names = [name for name, method in METHODS.items() if method == self]
        return names[0] if names else self._described()

    def _described(self) -> str:
        """Return the closest named method and the parts that differ from it."""
        described = []
        for name, method in METHODS.items():
            changes = [
                f"{part.name}={getattr(self, part.name)!r}"
                for part in fields(self)
                if getattr(self, part.name) != getattr(method, part.name)
            ]
            described.append((len(changes), f"{name} with {', '.join(changes)}"))
        return min(described, key=lambda entry: entry[0])[1]

    def __str__(self) -> str:
        return self.name


METHODS: dict[str, Method] = {
    "preserve": Method(),
    "iterative-id": Method(
        selection="pivoting", allocation="iterative", refit=False, regularize=False
    ),
    "constant-id": Method(
        selection="pivoting", allocation="constant", refit=False, regularize=False
    ),
}
"""The named methods: ours, and the paper's two."""


def as_method(method: str | Method) -> Method:
    """Return the method that a user's `method=` means."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise ArgumentError(
            f"method={method!r}; give one of {', '.join(METHODS)}, or an interpress.Method"
        )
    return Method.named(method)

"""What a user can ask of a distillation."""

from __future__ import annotations

from dataclasses import dataclass

from interpress.checks import is_number, is_whole
from interpress.distillation.inputs import Augment
from interpress.errors import ArgumentError

MINUTES = 2.0
"""How long a distillation takes, if the user does not say."""


@dataclass(frozen=True)
class Limit:
    """When training ends: after a time, after a number of steps, or whichever comes first."""

    seconds: float | None
    steps: int | None

    def part(self, seconds: float, steps: int) -> float:
        """Return how much of the run is over, 0 to 1."""
        parts = [0.0]
        if self.seconds is not None:
            parts.append(seconds / self.seconds)
        if self.steps is not None:
            parts.append(steps / self.steps)
        return min(1.0, max(parts))


@dataclass(frozen=True)
class DistillOptions:
    """The checked options of one distillation."""

    minutes: float | None = None
    steps: int | None = None
    augment: Augment | None = None
    memory: float | None = None
    """GiB of activations to hold for a gradient."""

    def __post_init__(self) -> None:
        if self.minutes is not None and not (is_number(self.minutes) and 0 < self.minutes < 1e6):
            raise ArgumentError(f"minutes={self.minutes!r}; give a number above 0, such as 2.0")
        if self.steps is not None and not (is_whole(self.steps) and self.steps > 0):
            raise ArgumentError(f"steps={self.steps!r}; give a whole number of at least 1")
        if self.augment is not None and not callable(self.augment):
            raise ArgumentError(f"augment={self.augment!r}; give a function of a batch of inputs")
        if self.memory is not None and not (is_number(self.memory) and 0 < self.memory < 1e9):
            raise ArgumentError(
                f"memory={self.memory!r}; give the GiB that activations may take, such as 1.0"
            )

    @classmethod
    def from_argument(cls, distill: bool | float) -> DistillOptions | None:
        """Return what `distill=` of `compress` asks for: True, or a number of minutes."""
        if distill is False or distill is None:
            return None
        if distill is True:
            return cls()
        if not is_number(distill) or not 0 < distill < 1e6:
            raise ArgumentError(
                f"distill={distill!r}; give True, or the minutes to train, such as 2.0"
            )
        return cls(minutes=float(distill))

    @property
    def limit(self) -> Limit:
        """When training ends: the first limit that is reached."""
        minutes = self.minutes
        if minutes is None and self.steps is None:
            minutes = MINUTES
        return Limit(None if minutes is None else 60 * minutes, self.steps)

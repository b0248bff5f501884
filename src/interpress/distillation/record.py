"""What a distillation did, as one record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Distillation:
    """How long a network was trained towards its original, and what held-out examples say."""

    steps: int
    seconds: float
    before: float
    """The mean loss of held-out examples where training started; see `OutputLoss`."""
    after: float
    """The same at the best point that was found."""
    kept: bool
    """Whether the network has the trained weights. If not, it is as it was."""
    reason: str = ""
    """Why the trained weights were not kept, or why training ended early."""
    inputs: str = ""
    """How the inputs were changed, if they were."""

    loss: str = "loss"
    """What the loss is, in words."""

    def __str__(self) -> str:
        seconds = f"{self.steps:,} steps in {self.seconds:.0f} s"
        change = f"held-out {self.loss} {self.before:.3g} to {self.after:.3g}"
        if self.kept:
            ended = f"; {self.reason}" if self.reason else ""
            changed = f", inputs {self.inputs}" if self.inputs else ""
            return f"Distilled: {change}, {seconds}{changed}{ended}."
        return f"Distillation changed nothing: {self.reason} ({change}, {seconds})."

    def record(self) -> dict[str, Any]:
        """Return what a file says about it."""
        return asdict(self)

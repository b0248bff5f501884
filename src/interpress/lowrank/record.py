"""What low rank did to a network, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interpress.spaces.cost import Cost
from interpress.surgery.projection_identity import Proof

_LISTED = 4  # layers that a sentence names


@dataclass(frozen=True)
class ThinPair:
    """A layer of the smaller network that became two thin ones."""

    name: str
    rank: int
    outputs: int
    inputs: int
    """Inputs of one output: channels times kernel positions."""
    positions: int
    """How often it is applied to the captured example."""
    itemsize: int
    """Bytes of one value between the two layers."""

    @property
    def saved(self) -> int:
        """Parameters that the two layers have less than the one; also multiplications per row."""
        return self.outputs * self.inputs - self.rank * (self.outputs + self.inputs)

    @property
    def share(self) -> float:
        """The cost of the two layers, relative to that of one layer with these sizes."""
        return 1 - self.saved / (self.outputs * self.inputs)

    def __str__(self) -> str:
        return f"{self.name} (rank {self.rank} of {min(self.outputs, self.inputs)})"


@dataclass(frozen=True)
class LowRank:
    """The layers that became two, and the comparison with dropping channels only."""

    pairs: tuple[ThinPair, ...] = ()
    """Empty if channels alone are better, or if no layer can become two."""
    proof: Proof | None = None
    """That two thin layers do what one layer of that rank would do; None without such layers."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """The losses on held-out examples: of channels alone, and of the best network of low rank."""
    latency: tuple[float, float | None] | None = None
    """Measured run time relative to the original: of this network, and of channels alone. None
    for the latter if channels alone cannot meet the budget."""
    reason: str = ""
    """Why no layer became two."""

    def reduced(self, cost: Cost) -> Cost:
        """Return the cost of a network (for the captured example) after layers became two."""
        return Cost(
            cost.flops - sum(2 * pair.positions * pair.saved for pair in self.pairs),
            cost.parameters - sum(pair.saved for pair in self.pairs),
            cost.activation_bytes
            + sum(pair.itemsize * pair.positions * pair.rank for pair in self.pairs),
        )

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of every layer that became two, by the name of its module."""
        return {pair.name: pair.rank for pair in self.pairs}

    def __str__(self) -> str:
        return self.described()

    def described(self, loss: str = "loss") -> str:
        """Return what was done as sentences; `loss` says what the losses are."""
        if not self.pairs:
            return f"Low rank: {self.reason}{self._compared(loss)}."
        listed = ", ".join(map(str, self.pairs[:_LISTED]))
        more = f" and {len(self.pairs) - _LISTED} more" if len(self.pairs) > _LISTED else ""
        noun = "layer" if len(self.pairs) == 1 else "layers"
        sentences = [f"Low rank: {len(self.pairs)} {noun} became two: {listed}{more}"]
        sentences[0] += self._compared(loss)
        if self.latency is not None:
            time, alone = self.latency
            compared = "; channels alone cannot meet this budget"
            if alone is not None:
                compared = f", with channels alone {alone:.2f}"
            sentences.append(f"Measured run time {time:.2f} of the original's{compared}")
        return ". ".join(sentences) + "."

    def _compared(self, loss: str) -> str:
        if len(self.losses) < 2:
            return ""
        (_, alone), (_, with_ranks) = self.losses.items()
        return f"; held-out {loss} {with_ranks:.3g}, with channels alone {alone:.3g}"

    def record(self) -> dict[str, Any]:
        """Return what a file says about it."""
        return {
            "ranks": self.ranks,
            "losses": dict(self.losses),
            "latency": self.latency,
            "proof": None if self.proof is None else self.proof.difference,
            "reason": self.reason,
        }

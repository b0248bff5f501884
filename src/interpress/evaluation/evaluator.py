"""Judge smaller networks on the held-out part of the calibration set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.agreement import output_of
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement, Tally


@dataclass(frozen=True, eq=False)
class Evaluator:
    """The original network and the held-out examples that others are compared on."""

    original: nn.Module
    data: CalibrationSet
    meaning: OutputMeaning
    examples_per_batch: int | None = None
    """At most this many examples run at once; None for no limit."""

    def agreements(self, *networks: nn.Module) -> list[Agreement]:
        """Return how much each network agrees with the original."""
        tallies = [Tally(self.meaning) for _ in networks]
        doubt = decisions = 0.0
        position = self.meaning.position
        for example in self.data.gathered("held", self.examples_per_batch):
            reference = output_of(self.original, example, position)
            for tally, network in zip(tallies, networks, strict=True):
                tally.add(reference, output_of(network, example, position))
            confidence = self.meaning.rule.confidence(reference)
            if confidence is not None:
                doubt += float((1 - confidence).sum())
                decisions += confidence.numel()
        mean_confidence = 1 - doubt / decisions if decisions else None
        return [replace(tally.result(), confidence=mean_confidence) for tally in tallies]

    def agreement(self, network: nn.Module) -> Agreement:
        """Return how much one network agrees with the original."""
        return self.agreements(network)[0]

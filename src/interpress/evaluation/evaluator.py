"""Judge smaller networks on a part of the calibration set, usually the held-out examples."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from interpress.data.calibration_set import CalibrationSet, Part
from interpress.evaluation.agreement import outputs_of
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
    part: Part = "held"
    """Which examples."""

    def agreements(self, *networks: nn.Module) -> list[Agreement]:
        """Return how much each network agrees with the original."""
        tallies = [Tally(self.meaning) for _ in networks]
        doubt = decisions = 0.0
        rule = self.meaning.rule
        for example in self.data.gathered(self.part, self.examples_per_batch):
            reference = outputs_of(self.original, example, self.meaning)
            deciding = self.meaning.pick(reference)
            mask = self.meaning.mask(reference, example)
            for tally, network in zip(tallies, networks, strict=True):
                outputs = outputs_of(network, example, self.meaning)
                tally.add(reference, outputs, mask=mask)
            confidence = rule.confidence(deciding)
            if confidence is not None:
                counted = rule.counted(deciding, mask)
                confidence = confidence if counted is None else confidence[counted]
                doubt += float((1 - confidence).sum())
                decisions += confidence.numel()
        mean_confidence = 1 - doubt / decisions if decisions else None
        return [replace(tally.result(), confidence=mean_confidence) for tally in tallies]

    def agreement(self, network: nn.Module) -> Agreement:
        """Return how much one network agrees with the original."""
        return self.agreements(network)[0]

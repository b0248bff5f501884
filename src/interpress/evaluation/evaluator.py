"""Judge smaller networks on a part of the calibration set, usually the held-out examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from interpress.data.calibration_set import CalibrationSet, Part
from interpress.evaluation.agreement import outputs_of
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement, Tally
from interpress.graph.example import Example

Contenders = Callable[[list[Agreement]], Collection[int]]
"""From the agreements of some networks to the indices of those to judge on more examples."""
_KEPT_BYTES = 2**24
"""Bytes of the original's outputs that are kept for later comparisons: those of some thousand
examples with a thousand classes. Outputs beyond this are computed again."""


class Judge:
    """Adds up, batch by batch, how much some networks agree with the original."""

    def __init__(self, meaning: OutputMeaning, networks: int) -> None:
        self._meaning = meaning
        self._tallies = [Tally(meaning) for _ in range(networks)]
        self._doubt = self._decisions = 0.0

    def add(
        self, reference: list[Tensor], outputs: Sequence[list[Tensor] | None], example: Example
    ) -> None:
        """Add the outputs of the original and of every network on one batch; None adds nothing."""
        rule, deciding = self._meaning.rule, self._meaning.pick(reference)
        mask = self._meaning.mask(reference, example)
        for tally, tensors in zip(self._tallies, outputs, strict=True):
            if tensors is None:
                continue
            tally.add(reference, tensors, mask=mask, tokens=self._meaning.tokens_of(example))
        confidence = rule.confidence(deciding)
        if confidence is not None:
            counted = rule.counted(deciding, mask)
            confidence = confidence if counted is None else confidence[counted]
            self._doubt += float((1 - confidence).sum())
            self._decisions += confidence.numel()

    def results(self) -> list[Agreement]:
        """Return the agreement of every network."""
        confidence = 1 - self._doubt / self._decisions if self._decisions else None
        return [replace(tally.result(), confidence=confidence) for tally in self._tallies]


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
    _reference: list[list[Tensor]] = field(default_factory=list, init=False, repr=False)
    """What the original gave for the first batches."""

    def examples(self) -> Iterator[Example]:
        """Yield the examples in batches."""
        return self.data.gathered(self.part, self.examples_per_batch)

    def agreements(
        self, *networks: nn.Module, contenders: Contenders | None = None
    ) -> list[Agreement]:
        """Return how much each network agrees with the original.

        `contenders` gets the agreements so far, before every batch but the first, and returns which
        networks run on. The agreement of the others is that on the examples before.
        """
        judge, running = Judge(self.meaning, len(networks)), set(range(len(networks)))
        for number, example in enumerate(self.examples()):
            if number and contenders is not None and len(running) > 1:
                running &= set(contenders(judge.results()))
            reference = self._outputs_of_original(number, example)
            outputs = [
                outputs_of(network, example, self.meaning) if index in running else None
                for index, network in enumerate(networks)
            ]
            judge.add(reference, outputs, example)
        return judge.results()

    def _outputs_of_original(self, number: int, example: Example) -> list[Tensor]:
        """Return the original's outputs on one batch, which are computed once if they are small."""
        if number < len(self._reference):
            return self._reference[number]
        outputs = outputs_of(self.original, example, self.meaning)
        kept = sum(t.nbytes for batch in (*self._reference, outputs) for t in batch)
        if number == len(self._reference) and kept <= _KEPT_BYTES:
            self._reference.append(outputs)
        return outputs

    def agreement(self, network: nn.Module) -> Agreement:
        """Return how much one network agrees with the original."""
        return self.agreements(network)[0]

"""How much every example counts in the refit: what is seldom decided counts for more.

Calibration data may show a class rarely, or never, and the network must go on telling it apart.
Plain least squares spends all there is on what is seen often. Here every class pulls equally: an
example counts by the sum, over classes, of its probability of the class as a share of what all
examples have of it; less than a factor of two is chance. No labels: probabilities are the original
network's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.evaluation.output_meaning import OutputMeaning

_LIKELIEST = 8  # classes remembered of every example
_CHANCE, _MOST = 2.0, 8.0  # times as much as the median example


@dataclass(frozen=True, eq=False)
class TopClasses:
    """What the original network makes of the examples: the likeliest classes of each."""

    classes: Tensor
    """(examples, likeliest)"""
    chances: Tensor
    """(examples, likeliest): their probabilities."""

    @classmethod
    def of(cls, probabilities: Tensor) -> TopClasses:
        """From (examples, classes)."""
        found = probabilities.topk(min(_LIKELIEST, probabilities.shape[1]), 1)
        return cls(found.indices.int().cpu(), found.values.float().cpu())

    def weights(self) -> Tensor:
        """(examples,): one for most of them, up to eight for what is seldom decided."""
        chances, classes = self.chances.double(), self.classes.long()
        seen = torch.zeros(int(classes.max()) + 1, dtype=torch.float64)
        seen.index_add_(0, classes.reshape(-1), chances.reshape(-1))
        pull = (chances / seen.clamp(min=1.0)[classes]).sum(1)  # less than one example is noise
        pull = pull / pull.median()
        return torch.where(pull < _CHANCE, 1.0, pull.clamp(max=_MOST)).float()


def top_classes_of(
    judge: OutputMeaning | None, outputs: Sequence[Tensor], examples: int
) -> TopClasses | None:
    """What a network made of a batch; None where it does not decide once for each example."""
    output = None if judge is None else outputs[judge.place]
    if judge is None or output is None or not output.ndim or len(output) != examples:
        return None
    probabilities = judge.probabilities(output)
    if probabilities is None or not bool(probabilities.isfinite().all()):
        return None
    return TopClasses.of(probabilities)


def joined(parts: Sequence[TopClasses | None]) -> TopClasses | None:
    """The decisions of all batches, if all are known."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    classes = torch.cat([part.classes for part in known])
    return TopClasses(classes, torch.cat([part.chances for part in known]))


def draw_examples(weights: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor | None]:
    """Some examples, in ascending order and none twice, and how much each counts (None: alike).

    What weighs more is drawn more surely, and then counts for that much less.
    """
    weights = weights.double()
    chances = weights.new_ones(len(weights))
    sure = torch.zeros(len(weights), dtype=torch.bool)
    while count < len(weights):
        left = torch.where(sure, 0.0, weights)
        chances = torch.where(sure, 1.0, left * (count - int(sure.sum())) / left.sum())
        if not bool((chances[~sure] > 1).any()):
            break
        sure |= chances >= 1
    order = torch.randperm(len(weights), generator=torch.Generator().manual_seed(seed))
    reached = (chances[order].cumsum(0) + 0.5).floor()  # one is drawn whenever this grows
    chosen = order[reached.diff(prepend=reached.new_zeros(1)) > 0].sort().values
    counts = (weights / chances)[chosen].float()
    return chosen, None if bool((counts == counts[:1]).all()) else counts

"""Sample weights for the refit: examples of rarely predicted classes count more.

The calibration data may show a class rarely, and the network must keep recognising it. Plain least
squares fits the frequent classes. Here every class gets the same total weight: the weight of an
example is the sum, over classes, of its probability of the class divided by the sum of all
examples' probabilities of that class. Weights below twice the median are set to one, because
differences that small are sampling noise. The probabilities are the original network's, so no
labels are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interpress.evaluation.output_meaning import OutputMeaning

_CLASSES = 8  # classes remembered per example; the others have next to no probability
_NOISE = 2.0  # multiples of the median weight that sampling noise explains
_LARGEST = 8.0  # largest weight, in multiples of the median, so that no example dominates


@dataclass(frozen=True, eq=False)
class TopClasses:
    """The most probable classes of every example, according to the original network."""

    classes: Tensor
    """(examples, top)"""
    probabilities: Tensor
    """(examples, top)"""

    @classmethod
    def of(cls, probabilities: Tensor) -> TopClasses:
        """Select the top classes from (examples, classes)."""
        top = probabilities.topk(min(_CLASSES, probabilities.shape[1]), 1)
        return cls(top.indices.int().cpu(), top.values.float().cpu())

    def weights(self) -> Tensor:
        """Return (examples,) sample weights: one for most, up to eight for rare classes."""
        probabilities, classes = self.probabilities.double(), self.classes.long()
        totals = torch.zeros(int(classes.max()) + 1, dtype=torch.float64)
        totals.index_add_(0, classes.reshape(-1), probabilities.reshape(-1))
        # a class with less than one example in total is noise, so totals are at least one
        weights = (probabilities / totals.clamp(min=1.0)[classes]).sum(1)
        weights = weights / weights.median()
        return torch.where(weights < _NOISE, 1.0, weights.clamp(max=_LARGEST)).float()


def top_classes_of(
    meaning: OutputMeaning | None, outputs: Sequence[Tensor], examples: int
) -> TopClasses | None:
    """Return the top classes of a batch; None if there is not one decision per example."""
    output = None if meaning is None else meaning.pick(outputs)
    if meaning is None or output is None or not output.ndim or len(output) != examples:
        return None
    probabilities = meaning.rule.probabilities(output)
    if probabilities is None or not bool(probabilities.isfinite().all()):
        return None
    return TopClasses.of(probabilities)


def concatenate(parts: Sequence[TopClasses | None]) -> TopClasses | None:
    """Return the top classes of all batches, or None if those of some batch are unknown."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    top = max(part.classes.shape[1] for part in known)  # less where the classes are positions
    classes = torch.cat([_padded(part.classes, top) for part in known])
    return TopClasses(classes, torch.cat([_padded(part.probabilities, top) for part in known]))


def _padded(values: Tensor, columns: int) -> Tensor:
    """Return the values with columns of zeros: class 0 with probability 0."""
    return nn.functional.pad(values, (0, columns - values.shape[1]))


def draw_examples(weights: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor | None]:
    """Draw about `count` examples without replacement; return their indices and weights.

    Examples are sampled in proportion to their weight and re-weighted by the inverse probability.
    Indices are ascending. The weights are None if all are equal.
    """
    weights = weights.double()
    probabilities = weights.new_ones(len(weights))
    certain = torch.zeros(len(weights), dtype=torch.bool)
    while count < len(weights):
        remaining = torch.where(certain, 0.0, weights)
        share = remaining * (count - int(certain.sum())) / remaining.sum()
        probabilities = torch.where(certain, 1.0, share)
        if not bool((probabilities[~certain] > 1).any()):
            break
        certain |= probabilities >= 1
    order = torch.randperm(len(weights), generator=torch.Generator().manual_seed(seed))
    # systematic sampling: an example is drawn whenever the rounded running total grows
    running_total = (probabilities[order].cumsum(0) + 0.5).floor()
    drawn = running_total.diff(prepend=running_total.new_zeros(1)) > 0
    chosen = order[drawn].sort().values
    new_weights = (weights / probabilities)[chosen].float()
    return chosen, None if bool((new_weights == new_weights[:1]).all()) else new_weights

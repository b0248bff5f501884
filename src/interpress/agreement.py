"""Do two networks decide the same? The paper's *model correlation*, with what belongs to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data import LABELS, Calibration, Forward, batch_size
from interpress.errors import DataError
from interpress.graph.capture import evaluation, unwrap
from interpress.graph.graph import Example
from interpress.judge import Judge, Kind, judge_of, tensors_of
from interpress.progress import bars

_Z = 1.959963984540054  # 95 %
_MOST_FLIPS = 10_000


@dataclass(frozen=True)
class Flip:
    """One decision that changed."""

    index: int
    """The example, counted from 0."""
    before: int
    after: int
    label: int | None = None
    position: tuple[int, ...] = ()
    """Where in the example (a token, a pixel), if it holds several decisions."""


@dataclass(frozen=True)
class ClassRow:
    """One class: by label where labels are given, else by what the first network decides."""

    label: int
    count: int
    agreement: float
    accuracy_before: float | None = None
    accuracy_after: float | None = None


@dataclass(frozen=True)
class Agreement:
    """How alike two networks are on some data."""

    kind: Kind
    examples: int
    decisions: int
    """How many decisions were compared; 0 for a regression."""
    agreement: float | None
    """Share of decisions that are the same; None for a regression."""
    interval: tuple[float, float] | None
    """95 % confidence interval of that share."""
    divergence: float | None
    """Mean KL(first || second) of the probabilities; None where there are no scores."""
    output_error: float | None
    """Relative root-mean-square difference of a regression's outputs, over their spread."""
    accuracy: tuple[float, float] | None = None
    """Of the first and the second network, where labels are known."""
    per_class: tuple[ClassRow, ...] = ()
    flips: tuple[Flip, ...] = field(default=(), repr=False)
    """The decisions that changed, at most 10,000 of them."""

    def __float__(self) -> float:
        return float("nan") if self.agreement is None else self.agreement

    def __str__(self) -> str:
        if self.agreement is None or self.interval is None:
            return f"output error {self.output_error:.3g} on {self.examples:,} examples"
        low, high = self.interval
        text = f"{self.agreement:.2%} of {self.decisions:,} decisions ({low:.2%} to {high:.2%})"
        return text if self.divergence is None else f"{text}, KL {self.divergence:.4f}"


def agreement(
    first: nn.Module,
    second: nn.Module,
    data: Any,
    *,
    labels: Tensor | None = None,
    forward: Forward | None = None,
    kind: Kind = "auto",
    progress: bool | None = None,
) -> Agreement:
    """Compare what two networks decide on the same data.

    `data` as for `compress`; labels are taken from `(inputs, labels)` batches, from a `labels` key,
    or from `labels=` (one per example, in order). A network without decisions (one number per
    example, an image) gets `output_error`; `kind=` says otherwise: "classification" (scores along
    the last dim), "segmentation" (along dim 1), "binary" (the sign of one score), "regression".
    """
    source = Calibration(data, unwrap(first), forward=forward)
    other = Calibration((), unwrap(second), forward=forward)
    tally: Tally | None = None
    with bars(progress) as places, places.job("comparing", None) as advance:
        for number, raw in enumerate(source.raw()):
            a, b = source.convert(raw, number), other.convert(raw, number)
            if tally is None:
                tally = Tally(judge_of(unwrap(first), a, kind))
            start, size = tally.examples, batch_size(a)
            own = labels_of(raw) if labels is None else labels[start : start + size]
            place = tally.judge.place
            tally.add(output_of(first, a, place), output_of(second, b, place), own)
            advance(size)
    if tally is None:
        raise DataError("there are no data to compare on; give some examples")
    if labels is not None and len(labels) != tally.examples:
        raise DataError(f"{len(labels)} labels for {tally.examples} examples; give one for each")
    return tally.result()


def output_of(model: nn.Module, example: Example, place: int) -> Tensor:
    """The output that counts, in evaluation mode."""
    network = unwrap(model)
    with evaluation(network), torch.no_grad():
        leaves = tensors_of(example.call(network))
    if place >= len(leaves):
        raise DataError(f"one network returns {len(leaves)} tensors, the other more; compare alike")
    return leaves[place].detach()


def labels_of(raw: Any) -> Tensor | None:
    """The labels of a batch, where it carries some."""
    if isinstance(raw, Mapping):
        found = next((raw[name] for name in LABELS if name in raw), None)
    else:
        found = raw[-1] if isinstance(raw, tuple | list) and len(raw) > 1 else None
    whole = isinstance(found, Tensor) and not found.is_floating_point()
    return found if whole and isinstance(found, Tensor) else None


class Tally:
    """Adds up batches of outputs; memory does not grow with them, but for the flips."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.examples = 0
        self._same: list[float] = []  # per example, the share of decisions that agree
        self._decisions = 0
        self._divergence = 0.0
        self._squares = [0.0, 0.0, 0.0]  # of differences, of the first, and its sum
        self._numbers = 0
        self._classes: dict[int, list[int]] = {}  # count, agreeing, first right, second right
        self._labelled = False
        self._flips: list[Flip] = []

    def add(self, a: Tensor, b: Tensor, labels: Tensor | None = None) -> None:
        """Outputs of both networks on the same batch."""
        if a.shape != b.shape:
            raise DataError(
                f"the networks' outputs have shapes {tuple(a.shape)} and {tuple(b.shape)}; compare "
                "networks with the same outputs"
            )
        a, b = a.cpu(), b.cpu()
        if not self.judge.decides:
            x, y = a.double(), b.double()
            for place, value in enumerate(((x - y).square().sum(), x.square().sum(), x.sum())):
                self._squares[place] += float(value)
            self._numbers += x.numel()
        else:
            self._divergence += float(self.judge.divergences(a, b).sum())
            self._decide(self.judge.decisions(a), self.judge.decisions(b), labels)
        self.examples += len(a)

    def _decide(self, before: Tensor, after: Tensor, labels: Tensor | None) -> None:
        same = before == after
        self._same += same.flatten(1).double().mean(1).tolist() if same.ndim > 1 else (
            same.double().tolist()
        )  # fmt: skip
        self._decisions += same.numel()
        known = labels is not None and labels.shape == before.shape
        truth = labels.cpu() if known and labels is not None else before
        self._labelled |= known
        for label in truth.unique().tolist():
            mine = truth == label
            row = self._classes.setdefault(int(label), [0, 0, 0, 0])
            parts = (mine, same[mine], before[mine] == label, after[mine] == label)
            for place, part in enumerate(parts):
                row[place] += int(part.sum())
        for where in torch.nonzero(~same)[: _MOST_FLIPS - len(self._flips)].tolist():
            at = tuple(where)
            label = int(truth[at]) if known else None
            flip = (int(before[at]), int(after[at]), label, at[1:])
            self._flips.append(Flip(self.examples + at[0], *flip))

    def result(self) -> Agreement:
        """What it came to."""
        if not self.judge.decides:
            spread = self._squares[1] - self._squares[2] ** 2 / self._numbers
            error = math.sqrt(self._squares[0] / spread) if spread > 0 else self._squares[0]
            return Agreement(self.judge.kind, self.examples, 0, None, None, None, error)
        share = sum(self._same) / len(self._same)
        agreed = [row[1] for row in self._classes.values()]
        count = sum(row[0] for row in self._classes.values())
        return Agreement(
            self.judge.kind,
            self.examples,
            self._decisions,
            share,
            self._interval(share, sum(agreed)),
            self._divergence / self.examples if self.judge.scores else None,
            None,
            tuple(sum(r[i] for r in self._classes.values()) / count for i in (2, 3))  # type: ignore[arg-type]
            if self._labelled
            else None,
            tuple(self._row(label) for label in sorted(self._classes)),
            tuple(self._flips),
        )

    def _row(self, label: int) -> ClassRow:
        count, same, before, after = self._classes[label]
        accuracies = (before / count, after / count) if self._labelled else (None, None)
        return ClassRow(label, count, same / count, *accuracies)

    def _interval(self, share: float, agreed: int) -> tuple[float, float]:
        """Wilson's interval; several decisions of one example count as one cluster."""
        n = self.examples
        if self._decisions == n:
            return wilson(agreed, n)
        spread = math.sqrt(sum((s - share) ** 2 for s in self._same) / max(n - 1, 1) / n)
        return max(0.0, share - _Z * spread), min(1.0, share + _Z * spread)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval for a share."""
    p, z2 = successes / trials, _Z**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)

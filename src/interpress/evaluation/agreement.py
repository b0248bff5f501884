"""Do two networks decide the same? The paper's *model correlation*, with what belongs to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.data.sources import LABELS, Forward, required_inputs
from interpress.errors import DataError
from interpress.evaluation.output_meaning import Kind, OutputMeaning, find_meaning, tensors_of
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation, untouched, unwrap
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
    distance: float | None = field(default=None, repr=False)
    """Mean over examples of the root of their KL: alike in kind, but not in the hands of the few
    examples on which the networks differ most. None where there are no scores."""

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
    labels: Any = None,
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
    networks = unwrap(first), unwrap(second)
    source = CalibrationSet(data, networks[0], forward=forward)
    other = CalibrationSet((), networks[1], forward=forward)
    tally: Tally | None = None
    given = None if labels is None else torch.as_tensor(labels)
    with (
        bars(progress) as places,
        places.job("comparing", None) as advance,
        untouched(networks[0]),
        untouched(networks[1]),
    ):
        for number, raw in enumerate(source.raw()):
            a, b = source.convert(raw, number), other.convert(raw, number)
            if tally is None:
                tally = Tally(find_meaning(networks[0], a, kind))
            start, size = tally.examples, batch_size(a)
            own = given[start : start + size] if given is not None else labels_of(raw, networks[0])
            if given is not None and len(own) != size:  # type: ignore[arg-type]
                raise DataError(f"{len(given)} labels for more examples; give one for each")
            place = tally.judge.place
            tally.add(output_of(first, a, place), output_of(second, b, place), own)
            advance(size)
    if tally is None:
        raise DataError("there are no data to compare on; give some examples")
    if given is not None and len(given) > tally.examples:
        raise DataError(f"{len(given)} labels for {tally.examples} examples; give one for each")
    return tally.result()


def output_of(model: nn.Module, example: Example, place: int) -> Tensor:
    """The output that counts, in evaluation mode."""
    network = unwrap(model)
    with evaluation(network), torch.no_grad():
        leaves = tensors_of(example.call(network))
    if place >= len(leaves):
        raise DataError(f"one network returns {len(leaves)} tensors, the other more; compare alike")
    return leaves[place].detach()


def labels_of(raw: Any, model: nn.Module) -> Tensor | None:
    """The labels of a batch, where it carries some beside the model's inputs."""
    if isinstance(raw, Mapping):
        found = next((raw[name] for name in LABELS if name in raw), None)
    else:
        inputs = max(1, required_inputs(model))
        found = raw[-1] if isinstance(raw, tuple | list) and len(raw) > inputs else None
    return found if isinstance(found, Tensor) and not found.is_floating_point() else None


class Tally:
    """Adds up batches of outputs; memory does not grow with them, but for the flips."""

    def __init__(self, judge: OutputMeaning) -> None:
        self.judge = judge
        self.examples = 0
        self._agreed = 0.0  # per example, the share of decisions that agree, summed
        self._decisions = 0
        self._divergence = 0.0
        self._distance = 0.0  # the same of roots
        self._numbers: list[Tensor] = []  # squared differences, squares and sums, per output
        self._classes: dict[int, list[int]] = {}  # count, agreeing, first right, second right
        self._decided: dict[int, list[int]] = {}  # the same by what the first network decides
        self._flips: list[Flip] = []

    def add(self, a: Tensor, b: Tensor, labels: Tensor | None = None) -> None:
        """Outputs of both networks on the same batch."""
        if a.shape != b.shape:
            raise DataError(
                f"the networks' outputs have shapes {tuple(a.shape)} and {tuple(b.shape)}; compare "
                "networks with the same outputs"
            )
        a, b = a.cpu(), b.cpu()
        for which, output in (("first", a), ("second", b)):
            if output.is_floating_point() and bool(output.isnan().any()):
                raise DataError(
                    f"the {which} network's output holds NaN around example {self.examples}; "
                    "there is nothing to compare"
                )
        if self.judge.decides:
            divergences = self.judge.divergences(a, b)
            self._divergence += float(divergences.sum())
            self._distance += float(divergences.sqrt().sum())
            self._decide(self.judge.decisions(a), self.judge.decisions(b), labels)
        else:
            x, y = a.double(), b.double()
            sums = [(x - y).square().sum(0), x.square().sum(0), x.sum(0)]
            before = self._numbers or [torch.zeros_like(part) for part in sums]
            self._numbers = [p + q for p, q in zip(before, sums, strict=True)]
        self.examples += len(a)

    def _decide(self, before: Tensor, after: Tensor, labels: Tensor | None) -> None:
        same = before == after
        self._agreed += float(same.reshape(len(same), -1).double().mean(1).sum())
        self._decisions += same.numel()
        self._count(self._decided, before, before, after)
        truth = None if labels is None else _fitted(labels.cpu(), before)
        if truth is not None:
            self._count(self._classes, truth, before, after)
        for where in torch.nonzero(~same)[: _MOST_FLIPS - len(self._flips)].tolist():
            at = tuple(where)
            label = None if truth is None else int(truth[at])
            flip = (int(before[at]), int(after[at]), label, at[1:])
            self._flips.append(Flip(self.examples + at[0], *flip))

    @staticmethod
    def _count(table: dict[int, list[int]], truth: Tensor, before: Tensor, after: Tensor) -> None:
        for label in truth.unique().tolist():
            if label < 0:  # by convention: no label
                continue
            mine = truth == label
            row = table.setdefault(int(label), [0, 0, 0, 0])
            same = before[mine] == after[mine]
            right = before[mine] == label, after[mine] == label
            for place, part in enumerate((mine, same, *right)):
                row[place] += int(part.sum())

    def result(self) -> Agreement:
        """What it came to."""
        kind = self.judge.kind
        if not self.judge.decides:
            return Agreement(kind, self.examples, 0, None, None, None, self._output_error())
        share = self._agreed / self.examples
        labelled = bool(self._classes)
        table = self._classes or self._decided
        count = sum(row[0] for row in table.values())
        right = [sum(row[i] for row in table.values()) / max(count, 1) for i in (2, 3)]
        return Agreement(
            kind,
            self.examples,
            self._decisions,
            share,
            wilson(self._agreed, self.examples),
            self._divergence / self.examples if self.judge.scores else None,
            None,
            (right[0], right[1]) if labelled else None,
            tuple(_class_row(label, table[label], labelled) for label in sorted(table)),
            tuple(self._flips),
            self._distance / self.examples if self.judge.scores else None,
        )

    def _output_error(self) -> float:
        """Root mean square of the differences over the spread of each output around its mean."""
        difference, square = (value.sum() for value in self._numbers[:2])
        spread = float(square - (self._numbers[2].square() / self.examples).sum())
        return math.sqrt(float(difference) / spread) if spread > 0 else float(difference)


def _fitted(labels: Tensor, decisions: Tensor) -> Tensor:
    if labels.numel() != decisions.numel():
        raise DataError(
            f"labels of shape {tuple(labels.shape)} for decisions of shape "
            f"{tuple(decisions.shape)}; give one for each"
        )
    return labels.reshape(decisions.shape).long()


def _class_row(label: int, row: list[int], labelled: bool) -> ClassRow:
    count, same, before, after = row
    accuracies = (before / count, after / count) if labelled else (None, None)
    return ClassRow(label, count, same / count, *accuracies)


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval for a share.

    Decisions of one example are not independent, so an example counts as one trial, however many
    it holds.
    """
    p, z2 = successes / trials, _Z**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)

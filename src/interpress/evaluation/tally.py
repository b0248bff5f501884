"""Count how often two networks decide the same: the paper's *model correlation*."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.errors import DataError
from interpress.evaluation.output_errors import (
    MEAN_GIVES_ONE,
    OtherOutput,
    OtherTally,
    RelativeError,
)
from interpress.evaluation.output_kinds import example_means
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tokens import TokenScores, TokenTally
from interpress.tables.text_table import counted

_Z = 1.959963984540054  # quantile of the normal distribution for a 95 % interval
_MOST_FLIPS = 10_000  # bounds the memory of a long comparison
_MOST_NAMED = 6  # other outputs in a sentence; `Agreement.others` has all of them


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
    """One class: by label if labels are given, else by what the first network decides."""

    label: int
    count: int
    agreement: float
    accuracy_before: float | None = None
    accuracy_after: float | None = None


@dataclass(frozen=True, repr=False)
class Agreement:
    """How much two networks agree on some data."""

    kind: str
    examples: int
    decisions: int
    """How many decisions were compared; 0 for a regression."""
    agreement: float | None
    """Fraction of decisions that are the same; None for a regression."""
    interval: tuple[float, float] | None
    """95 % confidence interval of that fraction."""
    divergence: float | None
    """Mean KL(first || second) of the probabilities; None if there are no scores."""
    output_error: float | None
    """Root-mean-square difference of a regression's outputs, relative to their standard deviation:
    predicting the mean gives 1."""
    accuracy: tuple[float, float] | None = None
    """Of the first and the second network, if labels are known."""
    turned: tuple[int, int, int] | None = None
    """Of the decisions that changed: how many turned from right to wrong, from wrong to right, and
    from one wrong decision to another; None without labels."""
    per_class: tuple[ClassRow, ...] = ()
    flips: tuple[Flip, ...] = field(default=(), repr=False)
    """The decisions that changed, at most 10,000 of them."""
    distance: float | None = field(default=None, repr=False)
    """Mean over examples of sqrt(KL). With about 200 examples the mean KL is dominated by a few
    outliers; this is not. None if there are no scores."""
    distances: tuple[float, ...] = field(default=(), repr=False, compare=False)
    """sqrt(KL) of every example, in order."""
    confidence: float | None = field(default=None, repr=False)
    """Mean confidence of the first network in its decisions, where it was measured."""
    output: str = ""
    """The name of the output that decides, such as `logits`, `[0]` or `heads.box`; empty if the
    networks return one bare tensor."""
    others: tuple[OtherOutput, ...] = ()
    """The other outputs, each with its error, ordered by name."""
    tokens: TokenScores | None = None
    """Perplexity and likeliest tokens, for models that predict the next token."""

    def __float__(self) -> float:
        return float("nan") if self.agreement is None else self.agreement

    def __str__(self) -> str:
        if self.agreement is None or self.interval is None:
            error = f"output error {self.output_error:.3g} ({MEAN_GIVES_ONE})"
            return f"{error} on {counted(self.examples, 'example')}"
        low, high = self.interval
        text = f"{self.agreement:.2%} of {self.decisions:,} decisions ({low:.2%} to {high:.2%})"
        return text if self.divergence is None else f"{text}, KL {_short(self.divergence)} nats"

    def __repr__(self) -> str:
        return f"Agreement({self})"

    @property
    def notes(self) -> tuple[str, ...]:
        """Perplexity, which of several outputs decides, and the others' errors, as sentences."""
        scores = [] if self.tokens is None else [str(self.tokens)]
        if not self.others:
            return tuple(scores)
        notes = [
            *scores,
            f"Judged by the output {self.output!r}; choose another with output= (--output "
            "on the command line).",
        ]
        errors = [f"{o.name} {o.error:.3g}" for o in self.others if o.error is not None]
        equal = [f"{o.name} {o.equal:.2%}" for o in self.others if o.equal is not None]
        if errors:
            notes.append(f"Relative error of other outputs ({MEAN_GIVES_ONE}): {_few(errors)}.")
        if equal:
            notes.append(f"Equal entries of other outputs: {_few(equal)}.")
        return tuple(notes)


def _short(divergence: float) -> str:
    """Return a divergence with four digits, or its magnitude if these would all be 0."""
    return f"{divergence:.1e}" if 0 < divergence < 5e-5 else f"{divergence:.4f}"


class Tally:
    """Adds up batches of outputs; apart from the flips, its memory does not grow with them."""

    def __init__(self, meaning: OutputMeaning) -> None:
        self.meaning = meaning
        self.seen = 0
        """Examples added, whether they count or not."""
        self.examples = 0
        """Examples that count: those that no mask excludes altogether."""
        self._agreed = 0.0  # summed over examples: the fraction of their decisions that agree
        self._decisions = 0
        self._divergence = 0.0
        self._distances: list[float] = []  # per example that counts
        self._error = RelativeError()
        self._others: dict[str, OtherTally] = {}
        self._by_label: dict[int, list[int]] = {}  # count, agreeing, first right, second right
        self._by_decision: dict[int, list[int]] = {}  # the same by the first network's decision
        self._turned = [0, 0, 0]
        self._flips: list[Flip] = []
        self._tokens = TokenTally()

    def add(
        self,
        first: Tensor | Sequence[Tensor],
        second: Tensor | Sequence[Tensor],
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> None:
        """Add the outputs of both networks on one batch: all tensors, in flattening order.

        `mask` (examples, positions...) is True where a position counts. It applies to the outputs
        whose first dims have its shape. An example where no position counts is left out. `tokens`
        are the inputs of a language model.
        """
        all_first = [first] if isinstance(first, Tensor) else list(first)
        all_second = [second] if isinstance(second, Tensor) else list(second)
        self._add_deciding(
            self.meaning.pick(all_first), self.meaning.pick(all_second), labels, mask
        )
        if tokens is not None:
            deciding = self.meaning.pick(all_first), self.meaning.pick(all_second)
            self._tokens.add(*deciding, tokens, mask)
        others = zip(self.meaning.others(all_first), self.meaning.others(all_second), strict=True)
        for (name, one), (_, other) in others:
            self._others.setdefault(name, OtherTally(name)).add(one, other, mask)

    def _add_deciding(
        self, first: Tensor, second: Tensor, labels: Tensor | None, mask: Tensor | None
    ) -> None:
        if first.shape != second.shape:
            raise DataError(
                f"the networks' outputs have shapes {tuple(first.shape)} and "
                f"{tuple(second.shape)}; compare networks with the same outputs"
            )
        rule = self.meaning.rule
        counted = rule.counted(first, mask)
        first, second = (rule.silenced(output, counted) for output in (first, second))
        for which, output in (("first", first), ("second", second)):
            if output.is_floating_point() and bool(output.isnan().any()):
                raise DataError(
                    f"the {which} network's output is NaN near example {self.seen}, so it "
                    "cannot be compared; check its weights and this example"
                )
        if rule.decides:
            divergences = rule.divergences(first, second, counted)
            self._divergence += float(divergences.sum())
            self._distances += divergences.sqrt().tolist()
            decided = rule.decisions(first).cpu(), rule.decisions(second).cpu()
            self._add_decisions(*decided, labels, counted)
        elif counted is None or mask is None:
            self._error.add(first, second)
        else:
            self._error.add(rule.rows(first, mask), rule.rows(second, mask))
        self.seen += len(first)
        self.examples += len(first if counted is None else counted.flatten(1).any(1).nonzero())

    def _add_decisions(
        self, before: Tensor, after: Tensor, labels: Tensor | None, counted: Tensor | None
    ) -> None:
        same = before == after  # also where nothing counts: both outputs are zero there
        self._agreed += float(example_means(same, counted).sum())
        self._decisions += same.numel() if counted is None else int(counted.sum())
        truth = None if labels is None else _matching(labels.cpu(), before)
        _count(self._by_decision, _where(counted, before), before, after)
        if truth is not None:
            known = _where(counted, truth)
            _count(self._by_label, known, before, after)
            right, still, changed = before == known, after == known, ~same & (known >= 0)
            for number, kind in enumerate((right & ~still, ~right & still, ~right & ~still)):
                self._turned[number] += int((changed & kind).sum())
        for indices in torch.nonzero(~same)[: _MOST_FLIPS - len(self._flips)].tolist():
            at = tuple(indices)
            label = None if truth is None else int(truth[at])
            self._flips.append(
                Flip(self.seen + at[0], int(before[at]), int(after[at]), label, at[1:])
            )

    def result(self) -> Agreement:
        """Return the agreement over all batches."""
        rule = self.meaning.rule
        if self.examples == 0:
            raise DataError("the mask excludes every position; mark those that count with True")
        others = tuple(tally.result() for tally in self._others.values())
        if not rule.decides:
            return Agreement(
                rule.name, self.examples, 0, None, None, None, self._error.value(),
                output=self.meaning.name, others=others,
            )  # fmt: skip
        labelled = bool(self._by_label)
        table = self._by_label or self._by_decision
        scores = self._tokens.result()
        count = sum(row[0] for row in table.values())
        right = [sum(row[i] for row in table.values()) / max(count, 1) for i in (2, 3)]
        return Agreement(
            kind=rule.name,
            examples=self.examples,
            decisions=self._decisions,
            agreement=self._agreed / self.examples,
            interval=wilson(self._agreed, self.examples),
            divergence=self._divergence / self.examples if rule.has_scores else None,
            output_error=None,
            accuracy=(right[0], right[1]) if labelled else None,
            turned=tuple(self._turned) if labelled else None,  # type: ignore[arg-type]
            per_class=()  # tokens of a vocabulary are too many for a table
            if scores is not None
            else tuple(_class_row(label, table[label], labelled) for label in sorted(table)),
            flips=tuple(self._flips),
            distance=sum(self._distances) / self.examples if rule.has_scores else None,
            distances=tuple(self._distances) if rule.has_scores else (),
            output=self.meaning.name,
            others=others,
            tokens=scores,
        )


def _count(table: dict[int, list[int]], truth: Tensor, before: Tensor, after: Tensor) -> None:
    """Add to each class its examples, agreeing ones, and right ones of either network."""
    labels, classes = truth.unique(return_inverse=True)
    columns = (
        torch.ones_like(before, dtype=torch.bool),
        before == after,
        before == truth,
        after == truth,
    )
    counts = [classes[column].bincount(minlength=len(labels)).tolist() for column in columns]
    for label, *numbers in zip(labels.tolist(), *counts, strict=True):
        if label < 0:  # a negative label means "ignore", as in torch.nn.CrossEntropyLoss
            continue
        row = table.setdefault(int(label), [0, 0, 0, 0])
        for column, number in enumerate(numbers):
            row[column] += number


def _where(counted: Tensor | None, truth: Tensor) -> Tensor:
    """Return classes with -1, which is ignored, where a decision does not count."""
    return truth if counted is None else torch.where(counted, truth.long(), -1)


def _few(entries: list[str]) -> str:
    more = len(entries) - _MOST_NAMED
    return ", ".join(entries[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _matching(labels: Tensor, decisions: Tensor) -> Tensor:
    if labels.numel() != decisions.numel():
        raise DataError(
            f"labels of shape {tuple(labels.shape)} for decisions of shape "
            f"{tuple(decisions.shape)}; give one label for each decision"
        )
    return labels.reshape(decisions.shape).long()


def _class_row(label: int, row: list[int], labelled: bool) -> ClassRow:
    count, same, before, after = row
    accuracies = (before / count, after / count) if labelled else (None, None)
    return ClassRow(label, count, same / count, *accuracies)


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval for a fraction.

    The decisions of one example are not independent, so an example counts as one trial, however
    many decisions it holds.
    """
    p, z2 = successes / trials, _Z**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)

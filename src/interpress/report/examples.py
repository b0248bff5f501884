"""The examples whose decision changed most, with both decisions and their probabilities.

They are the user's data, so they are collected only if the user asks. Nothing here is stored in
`plan.json`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.agreement import outputs_of
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement
from interpress.graph.example import Example
from interpress.pipeline.outcome import Outcome
from interpress.report.thumbnails import thumbnail
from interpress.storage.pretrained_folder import tokenizer_of

MOST = 24
"""Examples that a page shows."""
_OF_A_CLASS = 2  # examples of every class, by the original's decision, if all classes fit
_CONTEXT = 24  # tokens that are shown before a predicted one
_GENERIC = "LABEL_"  # how transformers names classes without names


@dataclass(frozen=True)
class Decision:
    """What one network decided."""

    name: str
    probability: float | None = None


@dataclass(frozen=True)
class Changed:
    """One example, or one position of it, whose decision changed."""

    index: int
    before: Decision
    after: Decision
    picture: str | None = None
    """A data URL, if the input is an image."""
    context: str | None = None
    """The tokens before the predicted one, of a language model."""
    truth: str | None = None
    """The label, or the token that really follows."""
    share: float | None = None
    """The share of the decisions of this example that changed, if it holds several."""


@dataclass(frozen=True)
class Gallery:
    """The decisions that changed most."""

    shown: tuple[Changed, ...]
    flipped: int
    where: str
    is_text: bool = False


def changed_decisions(
    outcome: Outcome, judged: Agreement | None, evaluation: Any, tokenizer: Any
) -> Gallery | None:
    """Return the decisions that changed on the examples that the page judges by.

    None if the output gives no decisions, or there are no data.
    """
    if judged is None or judged.agreement is None or outcome.study.data is None:
        return None
    collector = _Collector(outcome, judged, tokenizer)
    start = 0
    for example in _examples(outcome, evaluation):
        collector.add(start, example)
        start += batch_size(example)
    where = outcome.judged_on.removeprefix("on ") if evaluation is None else "evaluation data"
    tokens = outcome.study.meaning.tokens is not None
    return Gallery(collector.result(), collector.flipped, where, tokens)


def _examples(outcome: Outcome, evaluation: Any) -> Iterator[Example]:
    if evaluation is None:
        yield from outcome.study.evaluator().examples()
        return
    options = outcome.options
    source = CalibrationSet(
        evaluation, outcome.study.original, forward=options.forward, mask=options.mask,
        device=options.device,
    )  # fmt: skip
    for number, raw in enumerate(source.raw()):
        yield source.convert(raw, number)


class _Collector:
    """Keeps the decisions that changed most, over batches."""

    def __init__(self, outcome: Outcome, judged: Agreement, tokenizer: Any) -> None:
        self._networks = outcome.study.original, outcome.network.model
        self._meaning: OutputMeaning = outcome.study.meaning
        self._labels = {flip.index: flip.label for flip in judged.flips if not flip.position}
        self._names = _class_names(outcome.original)
        self._best: list[tuple[float, int, Changed]] = []
        self._best_of_class: dict[str, list[tuple[float, int, Changed]]] = {}
        self.flipped = 0
        """How many decisions changed, on all batches."""
        self._order = count()  # so that equal changes are not compared further
        if self._meaning.tokens is not None:
            self._decode_tokens = _decoder(tokenizer or tokenizer_of(outcome.original))

    def add(self, start: int, example: Example) -> None:
        """Look at one batch, whose first example has this number."""
        meaning = self._meaning
        outputs = [outputs_of(network, example, meaning) for network in self._networks]
        first, second = (meaning.pick(tensors) for tensors in outputs)
        counted = meaning.rule.counted(first, meaning.mask(outputs[0], example))
        before, after = (meaning.rule.decisions(output).cpu() for output in (first, second))
        changed = before != after
        if counted is not None:
            changed &= counted
        self.flipped += int(changed.sum())
        if meaning.tokens is not None:
            self._add_tokens(start, example, (first, second), changed)
        elif before.ndim == 1:
            self._add_single(start, example, (first, second), changed)
        else:
            self._add_shares(start, example, changed, counted)

    def result(self) -> tuple[Changed, ...]:
        """Return what changed most, first; every class has examples if there are not too many."""
        of_classes = [one for found in self._best_of_class.values() for one in found]
        ordered = [*_most_first(of_classes), *_most_first(self._best)]
        chosen = {one[1]: one for one in ordered}  # by number, so that none stands twice
        return tuple(one[2] for one in _most_first([*chosen.values()][:MOST]))

    def _offer(self, change: float, made: Callable[[], Changed], of_class: str = "") -> None:
        """Keep a decision if it is among those that changed most, of all or of its class."""
        heaps = [(self._best, MOST)]
        if of_class:
            heaps.append((self._best_of_class.setdefault(of_class, []), _OF_A_CLASS))
        wanted = [heap for heap, most in heaps if len(heap) < most or change > heap[0][0]]
        if not wanted:
            return
        entry = change, -next(self._order), made()
        for heap, most in heaps:
            if len(heap) < most:
                heapq.heappush(heap, entry)
            elif change > heap[0][0]:
                heapq.heapreplace(heap, entry)

    def _add_single(
        self, start: int, example: Example, outputs: tuple[Tensor, Tensor], changed: Tensor
    ) -> None:
        """Offer examples with one decision each."""
        rule = self._meaning.rule
        for row in torch.nonzero(changed).reshape(-1).tolist():
            pair = tuple(output[row : row + 1] for output in outputs)
            decisions = [int(rule.decisions(output)) for output in pair]
            scores = [rule.probabilities(output) if rule.has_scores else None for output in pair]

            def made(row: int = row, decisions: Any = decisions, scores: Any = scores) -> Changed:
                label = self._labels.get(start + row)
                before, after = map(self._decided, decisions, scores)
                return Changed(
                    start + row, before, after, picture=_picture(example, row),
                    truth=None if label is None or label < 0 else self._name(label),
                )  # fmt: skip

            self._offer(_certainty(decisions, scores), made, self._name(decisions[0]))

    def _add_tokens(
        self, start: int, example: Example, outputs: tuple[Tensor, Tensor], changed: Tensor
    ) -> None:
        """Offer positions whose next token changed."""
        tokens = self._meaning.tokens_of(example)
        assert tokens is not None
        places = torch.nonzero(changed)
        scores = [output[places[:, 0], places[:, 1]] for output in outputs]  # (places, vocabulary)
        certain = [self._meaning.rule.confidence(part) for part in scores]
        assert certain[0] is not None
        assert certain[1] is not None
        both = torch.minimum(certain[0], certain[1])
        for number in both.topk(min(MOST, len(both))).indices.tolist():
            row, place = places[number].tolist()
            chosen = [int(part[number].argmax()) for part in scores]
            known = [float(part[number]) for part in certain if part is not None]

            def made(
                row: int = row, place: int = place, chosen: Any = chosen, known: Any = known
            ) -> Changed:
                line = tokens[row].tolist()
                context = line[max(0, place + 1 - _CONTEXT) : place + 1]
                following = line[place + 1 : place + 2]
                before, after = (
                    Decision(self._decode_tokens([token]), probability)
                    for token, probability in zip(chosen, known, strict=True)
                )
                return Changed(
                    start + row, before, after, context=self._decode_tokens(context),
                    truth=self._decode_tokens(following) if following else None,
                )  # fmt: skip

            self._offer(min(known), made)

    def _add_shares(
        self, start: int, example: Example, changed: Tensor, counted: Tensor | None
    ) -> None:
        """Offer examples with several decisions, by the share that changed."""
        number = changed[0].numel() if counted is None else None
        for row in torch.nonzero(changed.flatten(1).any(1)).reshape(-1).tolist():
            total = number if counted is None else int(counted[row].sum())
            share = int(changed[row].sum()) / max(total or 1, 1)

            def made(row: int = row, share: float = share) -> Changed:
                picture = _picture(example, row)
                return Changed(start + row, Decision(""), Decision(""), picture, share=share)

            self._offer(share, made)

    def _decided(self, decision: int, scores: Tensor | None) -> Decision:
        known = scores is not None and decision < scores.shape[1]
        probability = float(scores[0, decision]) if known and scores is not None else None
        return Decision(self._name(decision), probability)

    def _name(self, decision: int) -> str:
        return self._names.get(decision, str(decision))


def _most_first(entries: list[tuple[float, int, Changed]]) -> list[tuple[float, int, Changed]]:
    return sorted(entries, key=lambda one: -one[0])


def _certainty(decisions: list[int], scores: Iterable[Tensor | None]) -> float:
    """Return how much a decision changed: how certain both networks are of theirs, at the least."""
    pairs = zip(decisions, scores, strict=True)
    return min((float(s[0, d]) if s is not None else 0.0) for d, s in pairs)


def _picture(example: Example, row: int) -> str | None:
    """Return the first input as a small image, if it is one."""
    images = next(iter(example.tensors()), None)
    if images is None or images.ndim != 4 or images.shape[1] not in (1, 3):
        return None
    return thumbnail(images[row]) if images.is_floating_point() else None


def _class_names(model: nn.Module) -> dict[int, str]:
    """Return the names of the classes, if the config of a model of transformers has them."""
    found = getattr(getattr(model, "config", None), "id2label", None)
    names = found if isinstance(found, dict) else {}
    return {int(k): str(v) for k, v in names.items() if not str(v).startswith(_GENERIC)}


def _decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    """Return a function from tokens to text: the tokenizer's, or the numbers of the tokens."""
    decode = getattr(tokenizer, "decode", None)
    return (lambda tokens: " ".join(map(str, tokens))) if decode is None else decode

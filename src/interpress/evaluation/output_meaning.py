"""Which output of a model decides, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size
from interpress.errors import ArgumentError, DataError
from interpress.evaluation.image_size import outputs_of_places
from interpress.evaluation.output_errors import OtherTally
from interpress.evaluation.output_kinds import KINDS, OutputKind, relative_distance
from interpress.evaluation.outputs import OutputLayout, flatten_output, listed, natural_order
from interpress.evaluation.tokens import predicted_tokens
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

AUTO = "auto"
"""The `kind=` that lets the shape of the output decide."""

Output: TypeAlias = str | int | Callable[[Any], Tensor] | None
"""What `output=` may be: the name or index of an output, or a function of the whole output."""


@dataclass(frozen=True)
class OutputMeaning:
    """The output that decides, and its kind."""

    position: int | None
    """Which of the output tensors, in flattening order; None for a tensor that `function` makes."""
    kind: str
    layout: OutputLayout = field(default_factory=OutputLayout)
    function: Callable[[Any], Tensor] | None = None
    """The user's `output=`, if it is a function."""
    tokens: int | None = None
    """Which input tensor holds the tokens that a language model predicts, if it is one."""

    def tokens_of(self, example: Example) -> Tensor | None:
        """Return the tokens that the output predicts, one position ahead."""
        return None if self.tokens is None else example.tensors()[self.tokens]

    @property
    def rule(self) -> OutputKind:
        """How outputs of this kind are compared."""
        return KINDS[self.kind]

    @property
    def name(self) -> str:
        """The name of the output that decides; empty if the model returns one bare tensor."""
        if self.position is not None:
            return self.layout.names[self.position]
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def output(self) -> Output:
        """The `output=` that chooses this output."""
        return self.function or self.name or None

    def pick(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the tensor that decides; `tensors` are all outputs in flattening order."""
        if self.function is not None:
            return _call(self.function, self.layout.rebuild(tensors), self.layout.names)
        assert self.position is not None
        return tensors[self.position]

    def mask(self, tensors: Sequence[Tensor], example: Example) -> Tensor | None:
        """Return the mask of an example that fits the decisions, if it has one."""
        return example.mask_for(self.rule.decisions(self.pick(tensors)))

    def others(self, tensors: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield the other outputs, ordered by name."""
        named = list(zip(self.layout.names, tensors, strict=False))
        if self.position is not None:
            del named[self.position : self.position + 1]
        yield from sorted(named, key=lambda pair: natural_order(pair[0]))

    def distance(
        self,
        first: Sequence[Sequence[Tensor]],
        second: Sequence[Sequence[Tensor]],
        examples: Sequence[Example],
    ) -> float:
        """Return the mean over outputs of the squared difference relative to the spread.

        `first` and `second` hold all outputs per batch. Only floating-point outputs with one entry
        per example are taken, besides the deciding one. For a language model it is the mean KL
        divergence of the predicted tokens, which many positions make reliable.
        """
        if self.tokens is not None:
            return self._divergence(first, second, examples)
        tallies: dict[str, OtherTally] = {}
        deciding = []
        for one, other, example in zip(first, second, examples, strict=True):
            a, b = self.pick(one), self.pick(other)
            deciding.append((a, b, self.mask(one, example)))
            for (name, x), (_, y) in zip(self.others(one), self.others(other), strict=True):
                if x.is_floating_point() and x.ndim and len(x) == len(a):
                    tally = tallies.setdefault(name, OtherTally(name))
                    tally.add(x, y, example.mask_for(x))
        distances = [self._deciding_distance(deciding)]
        distances += [tally.result().loss ** 2 for tally in tallies.values()]
        return sum(distances) / len(distances)

    def _divergence(
        self,
        first: Sequence[Sequence[Tensor]],
        second: Sequence[Sequence[Tensor]],
        examples: Sequence[Example],
    ) -> float:
        """Return the mean KL divergence of the deciding output over all examples."""
        parts = []
        for one, other, example in zip(first, second, examples, strict=True):
            a, b = self.pick(one), self.pick(other)
            counted = self.rule.counted(a, self.mask(one, example))
            parts.append(self.rule.divergences(a, b, counted))
        return float(torch.cat(parts).mean())

    def _deciding_distance(self, batches: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> float:
        """Return the distance of the deciding output; several batches are joined row by row."""
        if len(batches) == 1:
            return self.rule.distance(*batches[0])
        rows: tuple[list[Tensor], list[Tensor]] = ([], [])
        for a, b, mask in batches:
            decisions = self.rule.decisions(a)
            counts = torch.ones(decisions.shape[:2]) if mask is None else mask
            for part, output in zip(rows, (a, b), strict=True):
                part.append(self.rule.rows(output, counts))
        entries = max(part.shape[1] for part in rows[0])  # less where the classes are positions
        padded = [
            torch.cat([nn.functional.pad(part, (0, entries - part.shape[1])) for part in parts])
            for parts in rows
        ]
        return relative_distance(padded[0], padded[1])


def check_kind(kind: str) -> str:
    """Return `kind` if it is known, else raise."""
    if kind not in (AUTO, *KINDS):
        raise ArgumentError(f"kind={kind!r}; choose one of {', '.join((AUTO, *KINDS))}")
    return kind


def check_output(output: Any) -> None:
    """Raise if `output` cannot choose an output."""
    if output is None or callable(output) or (isinstance(output, str) and output):
        return
    if not isinstance(output, int) or isinstance(output, bool):
        raise ArgumentError(
            f"output={output!r}; give the name of an output such as 'logits', an index such as 0, "
            "or a function from the model's output to a tensor"
        )


def find_meaning(
    model: nn.Module, example: Example, kind: str = AUTO, output: Output = None
) -> OutputMeaning:
    """Run the model once and return which output decides, and what it means.

    Without `output`, one called `logits`, or `..._logits`, decides. Else it is the one with the
    most classes: at least two entries along the last dim of a two- or three-dimensional output are
    a classification, unless that dim grows with the images. If there are no scores, the output with
    the most entries per example decides.
    """
    check_kind(kind)
    check_output(output)
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    tensors, layout = flatten_output(result)
    if not tensors:
        raise DataError(
            f"{type(model).__name__} returns no tensor; compress the part of it that does"
        )
    values = list(tensors.values())
    places = outputs_of_places(model, example, tensors) if kind == AUTO else frozenset()
    if callable(output):
        chosen = _call(output, layout.rebuild(values), layout.names)
        position = next((i for i, value in enumerate(values) if value is chosen), None)
        named_logits = position is not None and _is_logits(layout.names[position])
    else:
        if output is None:
            position = _choose(tensors, kind, batch_size(example), places)
        else:
            position = _position(result, layout.names, output)
        chosen, named_logits = values[position], _is_logits(layout.names[position])
    has_places = position is not None and layout.names[position] in places
    meaning = OutputMeaning(
        position,
        _guess(chosen, named_logits, has_places) if kind == AUTO else kind,
        layout,
        output if callable(output) else None,
    )
    _check_shape(meaning, chosen)
    if meaning.kind == "classification" and chosen.ndim == 3:
        meaning = replace(meaning, tokens=predicted_tokens(model, example, meaning.pick))
    return meaning


def _call(function: Callable[[Any], Any], output: Any, names: Sequence[str]) -> Tensor:
    """Return what a user's function makes of the whole output."""
    try:
        tensor = function(output)
    except Exception as error:
        raise ArgumentError(
            f"the function given as output= failed ({type(error).__name__}: {error}); it gets the "
            f"model's whole output, whose tensors are {listed(names)}"
        ) from error
    if not isinstance(tensor, Tensor):
        raise ArgumentError(
            f"the function given as output= returned a {type(tensor).__name__}; return a tensor"
        )
    return tensor


def _position(result: Any, names: Sequence[str], output: str | int) -> int:
    """Return which tensor a name or an index means."""
    name = _name_at(result, output) if isinstance(output, int) else output
    if name is None or name not in names:
        single = isinstance(result, Tensor)
        remedy = "it returns one tensor; leave output= out" if single else "choose one of them"
        which = "" if single else f"; its outputs are {listed(names)}"
        raise ArgumentError(f"output={output!r} is no output of the model{which}; {remedy}")
    return names.index(name)


def _name_at(result: Any, index: int) -> str | None:
    """Return the name of the output at an index; the keys of a dict have no order."""
    if isinstance(result, Tensor):
        return "" if index in (0, -1) else None
    if isinstance(result, Mapping):
        return f"[{index}]"
    if not isinstance(result, tuple | list) or not -len(result) <= index < len(result):
        return None
    fields = getattr(result, "_fields", None)  # of a named tuple
    return f"[{index % len(result)}]" if fields is None else str(fields[index])


def _choose(tensors: Mapping[str, Tensor], kind: str, batch: int, places: frozenset[str]) -> int:
    """Return the position of the output that decides, by shape and name and never by order."""
    batched = {n: t for n, t in tensors.items() if t.ndim and len(t) == batch} or tensors
    if kind == AUTO:
        floats = {name: t for name, t in batched.items() if t.is_floating_point()}
        integers = {name: t for name, t in batched.items() if not t.is_complex()}
        logits = {name: t for name, t in floats.items() if _is_logits(name)}
        scores = {
            n: t for n, t in floats.items() if KINDS[_guess(t, False, n in places)].has_scores
        }
        pool = logits or scores or floats or integers or batched
    else:
        pool = {name: t for name, t in batched.items() if _can_be(kind, t)} or batched
        pool = {name: t for name, t in pool.items() if _is_logits(name)} or pool

    def rank(name: str) -> tuple[int, list[str | int]]:
        tensor = pool[name]
        guessed = _guess(tensor, _is_logits(name), name in places)
        rule = KINDS[guessed if kind == AUTO else kind]
        size = rule.classes(tensor) or tensor.numel()
        # a single score decides a binary output, so the smallest output is taken
        return size if kind == "binary" else -size, natural_order(name)

    return list(tensors).index(min(pool, key=rank))


def _is_logits(name: str) -> bool:
    return name.rpartition(".")[2].endswith("logits")


def _can_be(kind: str, output: Tensor) -> bool:
    """Return whether an output is a candidate for a kind that the user gave."""
    if not output.is_floating_point() and kind != "decisions":
        return False
    if kind == "segmentation" and output.ndim < 3:  # no pixels
        return False
    try:
        _check_shape(OutputMeaning(0, kind), output)
    except ArgumentError:
        return False
    return True


def _check_shape(meaning: OutputMeaning, output: Tensor) -> None:
    """Refuse a kind that the output cannot have."""
    if output.is_complex():
        raise ArgumentError(
            f"the model's output is complex ({output.dtype}), which cannot be compared; wrap the "
            "model so that it returns torch.view_as_real(output)"
        )
    if output.ndim == 0:
        raise ArgumentError(
            f"the model's output {meaning.name!r} is one number for the whole batch; choose an "
            "output with one entry per example with output="
        )
    if meaning.kind == "decisions" and output.is_floating_point():
        raise ArgumentError(
            "kind='decisions' is for outputs of integers, but this model returns scores; choose "
            "'classification', 'segmentation' or 'binary'"
        )
    classes = meaning.rule.classes(output)
    if classes is not None and classes < 2:
        raise ArgumentError(
            f"kind={meaning.kind!r} needs scores of at least 2 classes, but the output has shape "
            f"{tuple(output.shape)}; choose kind='binary' or 'regression'"
        )


def _guess(output: Tensor, is_logits: bool, has_places: bool) -> str:
    """Return the kind that an output's type, shape and name suggest.

    `has_places` says that its last dim depends on the size of the images.
    """
    if not output.is_floating_point():
        return "decisions"
    if is_logits and output.ndim == 4:
        return "segmentation"
    if output.ndim in (2, 3) and output.shape[-1] >= 2 and not has_places:
        return "classification"
    return "regression"

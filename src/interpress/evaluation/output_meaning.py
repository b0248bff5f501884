"""Which output of a model is compared, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, DataError
from interpress.evaluation.output_kinds import KINDS, OutputKind
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

AUTO = "auto"
"""The `kind=` that lets the shape of the output decide."""


@dataclass(frozen=True)
class OutputMeaning:
    """The output tensor that is compared, and its kind."""

    position: int
    """Which of the output tensors, in the order of the output's structure."""
    kind: str

    @property
    def rule(self) -> OutputKind:
        """How outputs of this kind are compared."""
        return KINDS[self.kind]


def check_kind(kind: str) -> str:
    """Return `kind` if it is known, else raise."""
    if kind not in (AUTO, *KINDS):
        raise ArgumentError(f"kind={kind!r}; choose one of {', '.join((AUTO, *KINDS))}")
    return kind


def find_meaning(model: nn.Module, example: Example, kind: str = AUTO) -> OutputMeaning:
    """Run the model once and return which output is compared, and what it means.

    An output called `logits` is compared, else the first floating-point one. Scores of at least
    two classes along the last dim of a two- or three-dimensional output are a classification.
    """
    check_kind(kind)
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    tensors = tensors_of(result)
    if not tensors:
        raise DataError(
            f"{type(model).__name__} returns no tensor; compress the part of it that does"
        )
    logits = result.get("logits") if isinstance(result, Mapping) else None
    floats = [i for i, tensor in enumerate(tensors) if tensor.is_floating_point()]
    named = (i for i, tensor in enumerate(tensors) if tensor is logits)
    position = next(named, (floats or [0])[0])
    meaning = OutputMeaning(
        position, _guess(tensors[position], logits is not None) if kind == AUTO else kind
    )
    _check_shape(meaning, tensors[position])
    return meaning


def tensors_of(result: Any) -> list[Tensor]:
    """Return the tensors of an output, in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _check_shape(meaning: OutputMeaning, output: Tensor) -> None:
    """Refuse a kind that the output cannot have."""
    if output.is_complex():
        raise ArgumentError(
            f"the model's output is complex ({output.dtype}), which cannot be compared; wrap the "
            "model so that it returns torch.view_as_real(output)"
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


def _guess(output: Tensor, is_logits: bool) -> str:
    if not output.is_floating_point():
        return "decisions"
    if is_logits and output.ndim == 4:
        return "segmentation"
    if output.ndim in (2, 3) and output.shape[-1] >= 2:
        return "classification"
    return "regression"

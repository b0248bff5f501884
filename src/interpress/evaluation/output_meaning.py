"""How two networks' outputs are compared: by what they decide, or by how far apart they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, DataError
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

Kind = Literal["auto", "classification", "segmentation", "binary", "regression", "decisions"]


@dataclass(frozen=True)
class OutputMeaning:
    """Which output counts and what it means.

    `classification`: scores along the last dim; `segmentation`: scores along dim 1; `binary`: the
    sign of a single score; `decisions`: whole numbers, compared as they are; `regression`: numbers.
    """

    place: int
    """Which of the output tensors, in the order of the output's structure."""
    kind: Kind

    @property
    def decides(self) -> bool:
        """Whether the output is, or gives, a decision."""
        return self.kind != "regression"

    @property
    def scores(self) -> bool:
        """Whether decisions are made from scores, so that a divergence can be told."""
        return self.kind in ("classification", "segmentation", "binary")

    def decisions(self, output: Tensor) -> Tensor:
        """What is decided: one whole number per example (and position)."""
        if self.kind == "binary":
            return (output > 0).long()
        return output.argmax(self._dim) if self.scores else output

    def divergences(self, reference: Tensor, other: Tensor) -> Tensor:
        """Per example: KL(reference || other) of the scores, or the squared error of numbers."""
        a, b = reference.double().cpu(), other.double().cpu()
        if self.kind == "decisions":
            per = (a != b).double()
        elif not self.scores:
            per = (a - b).square()
        else:
            p, q = self._log(a), self._log(b)
            per = torch.where(p > -1e30, p.exp() * (p - q.clamp(min=-1e30)), 0.0).sum(self._dim)
            per = per.clamp(min=0)  # below which only rounding goes
        return per.flatten(1).mean(1) if per.ndim > 1 else per

    def distance(self, reference: Tensor, other: Tensor) -> float:
        """Squared difference of the outputs relative to their spread; steadier than a divergence
        where there are few examples. Scores count up to a constant."""
        a, b = reference.double().cpu(), other.double().cpu()
        if self.kind in ("classification", "segmentation"):
            a, b = (x - x.mean(self._dim, keepdim=True) for x in (a, b))
        spread = float((a - a.mean(0)).square().sum())
        return float((a - b).square().sum()) / spread if spread > 0 else 0.0

    def confidence(self, output: Tensor) -> Tensor:
        """The probability of what is decided, per example (and position)."""
        return self._log(output.double().cpu()).exp().amax(self._dim)

    def probabilities(self, output: Tensor) -> Tensor | None:
        """(examples, classes), where there is one decision per example to be made from scores."""
        if not self.scores:
            return None
        found = self._log(output.double().cpu()).exp().movedim(self._dim, -1)
        alone = found.numel() == len(found) * found.shape[-1]
        return found.reshape(len(found), -1) if alone else None

    @property
    def _dim(self) -> int:
        return 1 if self.kind == "segmentation" else -1

    def _log(self, scores: Tensor) -> Tensor:
        if self.kind == "binary":
            return nn.functional.logsigmoid(torch.stack([-scores, scores], -1))
        return scores.log_softmax(self._dim)


def find_meaning(model: nn.Module, example: Example, kind: Kind = "auto") -> OutputMeaning:
    """Which output of a model counts, from running it once.

    An output called `logits` counts, else the first one of numbers. Scores of at least two classes
    along the last dim of a two- or three-dimensional output are a classification.
    """
    if kind not in get_args(Kind):
        raise ArgumentError(f"kind={kind!r}; choose one of {', '.join(get_args(Kind))}")
    with evaluation(model), torch.no_grad():
        result = example.call(model)
    leaves = tensors_of(result)
    if not leaves:
        raise DataError(f"{type(model).__name__} returns no tensor; compare it another way")
    named = result.get("logits") if isinstance(result, Mapping) else None
    floats = [i for i, leaf in enumerate(leaves) if leaf.is_floating_point()]
    place = next((i for i, leaf in enumerate(leaves) if leaf is named), (floats or [0])[0])
    found = _kind(leaves[place], named is not None) if kind == "auto" else kind
    if found == "decisions" and leaves[place].is_floating_point():
        raise ArgumentError(
            "kind='decisions' is for outputs that are whole numbers; these are scores, so choose "
            "'classification', 'segmentation' or 'binary'"
        )
    if found in ("classification", "segmentation") and _classes(leaves[place], found) < 2:
        raise ArgumentError(
            f"kind={kind!r}, but the output has shape {tuple(leaves[place].shape)}; choose "
            "kind='binary' or 'regression'"
        )
    return OutputMeaning(place, found)


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors of an output, in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _classes(output: Tensor, kind: Kind) -> int:
    if output.ndim < 2:
        return 0
    return output.shape[1] if kind == "segmentation" else output.shape[-1]


def _kind(output: Tensor, named: bool) -> Kind:
    if not output.is_floating_point():
        return "decisions"
    if named and output.ndim == 4:
        return "segmentation"
    if output.ndim in (2, 3) and output.shape[-1] >= 2:
        return "classification"
    return "regression"

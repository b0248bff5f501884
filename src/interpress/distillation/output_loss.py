"""The loss of distillation: how far the outputs of the smaller network are from the original's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.evaluation.output_kinds import example_means
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example


class OutputLoss:
    """Per example, the distance of all floating-point outputs from the original's.

    Of a language model it is the mean KL divergence of the predicted tokens. Of other models it is
    the squared difference, relative to the variance of the original's output, so that 1 is what
    predicting the mean gives. Scores of classes are centred first: a constant that is added to
    all scores changes no decision. Outputs other than the deciding one add their mean loss.
    Padding does not count.
    """

    def __init__(self, meaning: OutputMeaning, batches: Sequence[Sequence[Tensor]]) -> None:
        """Prepare for outputs like those of the original on a few batches."""
        self._meaning = meaning
        deciding = meaning.pick(batches[0])
        self._decides = deciding.is_floating_point()
        self._scale = 1.0
        if self._decides and meaning.tokens is None:
            self._scale = _variance([self._centred(meaning.pick(batch)) for batch in batches])
        parts: dict[str, list[Tensor]] = {}
        for batch in batches:
            size = len(meaning.pick(batch))
            for name, tensor in meaning.others(batch):
                if tensor.is_floating_point() and tensor.ndim and len(tensor) == size:
                    parts.setdefault(name, []).append(_finite(tensor, tensor))
        self._other_scales = {name: _variance(tensors) for name, tensors in parts.items()}
        if not self._decides and not self._other_scales:
            raise ArgumentError(
                f"the model returns {deciding.dtype} only, which has no gradient; distill a model "
                "that returns scores"
            )

    @property
    def name(self) -> str:
        """What the loss is, in words."""
        if self._other_scales:
            return "error of all outputs"
        if self._meaning.tokens is not None:
            return "KL in nats per token"
        return "squared output error"

    def __call__(
        self, reference: Sequence[Tensor], outputs: Sequence[Tensor], example: Example
    ) -> Tensor:
        """Return the loss of every example where some position counts."""
        meaning, parts = self._meaning, []
        target, output = meaning.pick(reference), meaning.pick(outputs)
        if self._decides:
            counted = meaning.rule.counted(target, meaning.mask(reference, example))
            parts.append(self._deciding(target, output, counted))
        others = zip(meaning.others(reference), meaning.others(outputs), strict=True)
        losses = [
            _squares(x, y, example.mask_for(x)) / self._other_scales[name]
            for (name, x), (_, y) in others
            if name in self._other_scales
        ]
        if losses:
            parts.append(sum(losses) / len(losses))  # type: ignore[arg-type]
        return sum(parts[1:], parts[0])

    def _deciding(self, target: Tensor, output: Tensor, counted: Tensor | None) -> Tensor:
        if self._meaning.tokens is not None:
            wanted = target.float().log_softmax(-1)
            predicted = output.float().log_softmax(-1)
            return _means((wanted.exp() * (wanted - predicted)).sum(-1), counted)
        finite = _finite(output, target)
        squares = (self._centred(_finite(target, target)) - self._centred(finite)).square()
        rule = self._meaning.rule
        if rule.class_dim is not None:
            squares = squares.mean(rule.class_dim)
        return _means(squares, counted) / self._scale

    def _centred(self, output: Tensor) -> Tensor:
        return self._meaning.rule.centred(_finite(output, output))


def _finite(output: Tensor, target: Tensor) -> Tensor:
    """Return an output in single precision, with 0 where the original's is infinite."""
    return torch.where(target.isfinite(), output, torch.zeros_like(output)).float()


def _squares(target: Tensor, output: Tensor, mask: Tensor | None) -> Tensor:
    squares = (_finite(target, target) - _finite(output, target)).square()
    if mask is not None:
        squares = squares.reshape(*mask.shape, -1).mean(-1)
    return _means(squares, mask)


def _means(values: Tensor, counted: Tensor | None) -> Tensor:
    """Return the mean of every example, without gradients that leave single precision."""
    return example_means(values, None if counted is None else counted.to(values.device))


def _variance(outputs: Sequence[Tensor]) -> float:
    """Return the mean squared difference from the mean example, over batches of outputs.

    Batches that differ in shape (texts of several lengths) are compared with their own mean. An
    output that never varies counts by its size.
    """
    alike = all(output.shape[1:] == outputs[0].shape[1:] for output in outputs)
    groups = [torch.cat(list(outputs))] if alike else outputs
    count = sum(output.numel() for output in groups)
    spread = sum(float((o - o.mean(0, keepdim=True)).square().sum()) for o in groups) / count
    size = sum(float(o.square().sum()) for o in groups) / count
    if spread > 1e-12 * size:
        return spread
    return size or 1.0

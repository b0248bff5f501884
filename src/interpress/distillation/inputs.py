"""Inputs for distillation: shuffled batches, moved and mixed where they are real-valued."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import torch
from torch import Tensor

from interpress.data.batches import batch_size, can_merge, merge_batches, take
from interpress.data.calibration_set import CalibrationSet
from interpress.distillation.moves import Move, with_moves
from interpress.errors import ArgumentError
from interpress.graph.example import Example

Augment = Callable[[Tensor], Tensor]
"""A user's function from a batch of one input to a changed batch of the same shape."""

_MOST_BYTES = 2**31
"""Bytes of examples that are held at once. More examples are read, but not trained on."""


class Inputs:
    """The examples to train on, grouped by shape, in memory."""

    def __init__(
        self,
        data: CalibrationSet,
        seed: int,
        augment: Augment | None = None,
        moves: Sequence[Move] = (),
    ) -> None:
        self._groups = _read(data)
        self._augment = augment
        self._moves = moves
        self._seed = seed
        self._sizes = [batch_size(group) for group in self._groups]

    def batches(self, size: int, start: int = 0) -> Iterator[Example]:
        """Yield batches of at most `size` examples without end, every example once per epoch.

        Every epoch and every batch has a seed of its own, so that a run which was ended can go on
        with the batch number `start`.
        """
        number = 0
        for epoch in count():
            generator = self._generator(epoch, "epoch")
            chunks = [
                (group, index)
                for group, members in zip(self._groups, self._sizes, strict=True)
                for index in torch.randperm(members, generator=generator).split(size)
            ]
            for chosen in torch.randperm(len(chunks), generator=generator).tolist():
                group, index = chunks[chosen]
                if number >= start:
                    yield self._changed(take(group, index), self._generator(number, "batch"))
                number += 1

    def _generator(self, number: int, purpose: str) -> torch.Generator:
        text = f"{self._seed} {purpose} {number}"
        digest = hashlib.sha256(text.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def _changed(self, example: Example, generator: torch.Generator) -> Example:
        """Augment or move a batch, then mix it in pairs: x <- w x + (1 - w) x[shuffled], w uniform.

        The original runs on the mixed inputs, so they need no labels. Networks are often certain
        of single examples, and a mixture shows more of what they compute. A batch that contains
        integers (tokens, indices) or masks is not mixed.
        """
        size = batch_size(example)
        if self._augment is not None:
            example = example.map(lambda tensor: self._augmented(tensor, size))
        example = with_moves(example, self._moves, generator)
        if size < 2 or not is_mixed(example):
            return example
        order = torch.randperm(size, generator=generator)
        weights = torch.rand(size, generator=generator)

        def mixed(tensor: Tensor) -> Tensor:
            if not tensor.ndim or len(tensor) != size:
                return tensor
            w = weights.to(tensor).reshape(-1, *[1] * (tensor.ndim - 1))
            return w * tensor + (1 - w) * tensor[order.to(tensor.device)]

        return example.map(mixed)

    def _augmented(self, tensor: Tensor, size: int) -> Tensor:
        if not tensor.ndim or len(tensor) != size or not tensor.is_floating_point():
            return tensor
        assert self._augment is not None
        changed = self._augment(tensor)
        if not isinstance(changed, Tensor) or len(changed) != size:
            raise ArgumentError(
                f"augment= returned {type(changed).__name__} for a batch of {size} examples; "
                "return a tensor with as many examples"
            )
        return changed.to(tensor)


def is_mixed(example: Example) -> bool:
    """Return whether the examples of a batch can be mixed: all inputs are real-valued."""
    size = batch_size(example)
    batched = [tensor for tensor in example.tensors() if tensor.ndim and len(tensor) == size]
    return not example.masks and all(tensor.is_floating_point() for tensor in batched)


def _read(data: CalibrationSet) -> list[Example]:
    """Return the examples to fit, merged as far as their shapes allow."""
    groups: list[list[Example]] = []
    held = 0
    for example in data.batches("fit"):
        held += sum(t.numel() * t.element_size() for t in example.tensors())
        if groups and held > _MOST_BYTES:
            break
        group = next((group for group in groups if can_merge(group[0], example)), None)
        if group is None:
            groups.append([example])
        else:
            group.append(example)
    return [merge_batches(group).map(torch.clone) for group in groups]

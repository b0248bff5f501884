"""The calibration set: batches of inputs, split into examples to fit and held-out examples.

Held-out examples are never fitted. They decide which refit to keep, how far a search goes, and how
much the two networks agree. Labels are ignored. Only the current batch is in memory, unless the
source can be read only once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from interpress.checks import is_whole
from interpress.data.batches import batch_size, can_merge, merge_batches, split_batch, take
from interpress.data.inputs import Forward, as_example, record_inputs, with_named_mask
from interpress.data.masks import Mask, check_mask, masks_of
from interpress.data.sources import BATCH, count_examples, rereadable
from interpress.errors import ArgumentError, DataError
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.graph.on_device import compute_device

Part = Literal["all", "fit", "held", "first", "second"]
"""All examples, those to fit, the held-out ones, or one of two halves of those to fit."""

HOLD_EVERY = 5
"""One in five examples is held out. Of fewer than five, all are both fitted and judged on."""
_PERIOD = 1009
"""The random choice of held-out examples repeats after this many groups of five. It is prime, so
that it does not fall in step with the batches."""
_COUNTED = 1000
"""Examples that are counted by reading them; with more, 16 rows of each are enough."""
_PEEKED = 8
"""Batches whose shapes are compared, if the source is not a list."""
_SAMPLED_VALUES = 512
"""Values of a batch that its fingerprint looks at."""
_EMPTY = "the calibration data are empty; give some examples of the model's inputs"


class CalibrationSet:
    """Batches of inputs on the model's device and in its dtype, readable any number of times."""

    def __init__(
        self,
        source: Any,
        model: nn.Module,
        *,
        forward: Forward | None = None,
        mask: Mask | None = None,
        seed: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """Prepare to read the data; `device` says where to compute, if not at the model's."""
        if forward is not None and not callable(forward):
            raise ArgumentError(f"forward={forward!r}; give a function of the model and a batch")
        check_mask(mask)
        if not is_whole(seed) or not 0 <= seed < 2**63:
            raise ArgumentError(f"seed={seed!r}; give a whole number from 0 to 2**63 - 1")
        self._source = rereadable(source, model)
        self._model = model
        self._forward = forward
        self._mask = mask
        generator = torch.Generator().manual_seed(seed)
        self._held = torch.randint(HOLD_EVERY, (_PERIOD,), generator=generator).tolist()
        self._fingerprints: dict[int, tuple[Any, ...]] = {}
        tensors = [*model.parameters(), *model.buffers()]
        self._elsewhere = device
        self._casts: bool | None = None  # whether inputs take the dtype of the weights
        self.device = device or compute_device(model)
        self.dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    def batches(self, part: Part = "all", limit: int | None = None) -> Iterator[Example]:
        """Yield the examples of one part in batches, in order; at most `limit` examples."""
        read = yielded = 0
        for number, raw in enumerate(self.raw()):
            example = self.convert(raw, number)
            self._check_unchanged(number, example)
            size = batch_size(example)
            index = self._members(part, read, size)
            read += size
            if limit is not None:
                index = index[: limit - yielded]
            yielded += len(index)
            if len(index):
                yield example if len(index) == size else take(example, index)
            if yielded == limit:
                return
        if read == 0:
            raise DataError(_EMPTY)

    def gathered(self, part: Part, most: int | None = None) -> Iterator[Example]:
        """Yield the examples of one part in batches of the usual size, at most `most` examples.

        `batches("held")` yields a fifth of every batch; this merges those.
        """
        waiting: list[Example] = []
        for example in self.batches(part):
            count = sum(map(batch_size, waiting))
            full = count >= BATCH or count + batch_size(example) > (most or math.inf)
            if waiting and (full or not can_merge(waiting[0], example)):
                yield from split_batch(merge_batches(waiting), most)
                waiting = []
            waiting.append(example)
        if waiting:
            yield from split_batch(merge_batches(waiting), most)

    def examples_at(self, part: Part, chosen: Tensor, size: int) -> list[Example]:
        """Return the examples of one part at ascending indices, in batches of at most `size`."""
        ready: list[Example] = []
        waiting: list[Example] = []
        start = 0
        for example in self.batches(part):
            stop = start + batch_size(example)
            index = chosen[(chosen >= start) & (chosen < stop)] - start
            start = stop
            if waiting and len(index) and not can_merge(waiting[0], take(example, index)):
                ready.append(merge_batches(waiting))
                waiting = []
            while len(index):
                room = size - sum(map(batch_size, waiting))
                if not room:
                    ready.append(merge_batches(waiting))
                    waiting, room = [], size
                waiting.append(take(example, index[:room]))
                index = index[room:]
        return [*ready, merge_batches(waiting)] if waiting else ready

    @cached_property
    def holds_out(self) -> bool:
        """Whether there are enough examples to hold one in five out."""
        read = 0
        for number, raw in enumerate(self.raw()):
            read += batch_size(self.convert(raw, number))
            if read >= HOLD_EVERY:
                return True
        return False

    def first(self) -> Example:
        """Return up to four examples, to capture the model with; the longest, if lengths differ."""
        free: set[int] = set()
        longest: Example | None = None
        first: list[torch.Size] = []
        for example in self.batches() if isinstance(self._source, list) else self._peeked():
            shapes = [tensor.shape for tensor in example.tensors()]
            first = first or shapes
            for one, other in zip(first, shapes, strict=False):
                pairs = enumerate(zip(one[1:], other[1:], strict=False), 1)
                free |= {dim for dim, (a, b) in pairs if a != b}
            if longest is None or _size(example) > _size(longest):
                longest = take(example, torch.arange(min(batch_size(example), 4)))
        assert longest is not None
        return replace(longest, free_dims=frozenset(free))

    def _peeked(self) -> Iterator[Example]:
        """Yield the first batches."""
        return islice(self.batches(), _PEEKED)

    def raw(self) -> Iterator[Any]:
        """Yield the batches as the user gave them."""
        return iter(self._source)

    def convert(self, raw: Any, number: int = 0) -> Example:
        """Return a user's batch as inputs on the model's device and in its dtype."""
        if self._forward is not None:
            example = record_inputs(self._model, self._forward, raw)
        else:
            raw = with_named_mask(raw, self._model)
            example = as_example(raw, self._model, number).without_cache(self._model)
        masks = masks_of(raw, self._mask, batch_size(example), number)
        example = replace(example, device=self._elsewhere)
        self._casts = self._must_cast(example) if self._casts is None else self._casts
        return replace(example.map(self._to_model), masks=masks)

    def _must_cast(self, example: Example) -> bool:
        """Return whether inputs take the dtype of the weights.

        If these have several dtypes, inputs stay as they are, unless the model refuses them so.
        """
        floats = {p.dtype for p in self._model.parameters() if p.is_floating_point()}
        if len(floats) < 2:
            return True
        self._casts = False
        try:
            output_tensors(self._model, example.map(self._to_model))
        except Exception:  # the model's code may raise anything
            return True
        return False

    def batch_count(self) -> int | None:
        """Return how many batches there are, if that is known without reading them."""
        length = getattr(self._source, "__len__", None)
        try:
            return None if length is None else length()
        except TypeError:
            return None

    def expected_fit_examples(self) -> int:
        """Return about how many examples are fitted; some hundreds stand for more.

        If the source does not say, its first examples are read and counted.
        """
        count = self._count_of_list() or count_examples(self._source)
        if count is None:
            count = 0
            for number, raw in enumerate(self.raw()):
                count += batch_size(self.convert(raw, number))
                if count >= _COUNTED:
                    break
        return max(1, count * (HOLD_EVERY - 1) // HOLD_EVERY if self.holds_out else count)

    def _count_of_list(self) -> int | None:
        """Return about how many examples a list of batches has that `forward` turns into inputs.

        A batch may be a list of images, whose first dim does not say how many there are.
        """
        if self._forward is None or not isinstance(self._source, list) or not self._source:
            return None
        return len(self._source) * batch_size(self.convert(self._source[0]))

    def count(self, part: Part = "all") -> int:
        """Read the data and return how many examples a part has."""
        return sum(batch_size(example) for example in self.batches(part))

    def check_stable(self) -> None:
        """Refuse data that change each time they are read, by reading the first batch twice."""
        for _ in range(2):
            raw = next(self.raw(), None)
            if raw is None:
                raise DataError(_EMPTY)
            self._check_unchanged(0, self.convert(raw))

    def fingerprint(self) -> str:
        """Return a short digest of the batches read so far: shapes and sampled values."""
        return hashlib.sha256(repr(sorted(self._fingerprints.items())).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Read the data and return a hash of every input."""
        total = hashlib.sha256()
        for example in self.batches():
            for tensor in [*example.tensors(), *example.masks]:
                total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                plain = tensor.cpu().contiguous().reshape(-1)
                total.update(plain.view(torch.uint8).numpy().data)
        return total.hexdigest()

    def _check_unchanged(self, number: int, example: Example) -> None:
        """Compare a batch with what it was when it was read first."""
        first = next(iter(example.tensors()), torch.zeros(0))
        values = first.reshape(-1)[:: max(1, first.numel() // _SAMPLED_VALUES)].double().cpu()
        positions = torch.arange(1.0, len(values) + 1, dtype=values.dtype)  # the order matters
        fingerprint = (
            tuple(first.shape),
            repr(float(values @ positions)),
            repr(float(values.abs().sum())),
        )
        if self._fingerprints.setdefault(number, fingerprint) != fingerprint:
            raise ArgumentError(
                f"the calibration data change each time they are read (batch {number} is shuffled "
                "or augmented at random), so no example can be held out; pass list(data), or turn "
                "shuffling and augmentation off"
            )

    def _members(self, part: Part, start: int, size: int) -> Tensor:
        """Return which of the examples `start` to `start + size` belong to a part."""
        if part == "all":
            return torch.arange(size)
        if part in ("fit", "held") and not self.holds_out:
            return torch.arange(size)
        number = torch.arange(start, start + size)
        group, place = number // HOLD_EVERY, number % HOLD_EVERY
        held_place = torch.tensor(self._held)[group % _PERIOD]
        held = place == held_place
        if not self.holds_out:
            group, held_place = torch.zeros_like(group), torch.full_like(group, HOLD_EVERY)
            held = torch.zeros_like(held)
        if part == "held":
            return torch.nonzero(held).reshape(-1)
        if part == "fit":
            return torch.nonzero(~held).reshape(-1)
        fit_number = number - group - (place > held_place).long()
        return torch.nonzero(~held & (fit_number % 2 == int(part == "second"))).reshape(-1)

    def _to_model(self, tensor: Tensor) -> Tensor:
        casts = tensor.is_floating_point() and self._casts
        dtype = self.dtype if casts else tensor.dtype
        return tensor.detach().to(self.device, dtype)


def _size(example: Example) -> int:
    """Return the number of input values per example."""
    return sum(tensor.numel() for tensor in example.tensors()) // batch_size(example)

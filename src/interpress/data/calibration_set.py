"""Calibration data: whatever a training loop would iterate over, as batches of model inputs.

A part of the examples is held out: it judges (which refit to keep, how far to go, how much the two
networks agree) and is never fitted to. Labels are ignored. Nothing is kept in memory but the batch
at hand, except where the data can be read only once.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from interpress.checks import is_whole
from interpress.errors import ArgumentError, DataError
from interpress.graph.example import Example

Forward = Callable[[nn.Module, Any], Any]
Part = Literal["all", "fit", "held"]

BATCH = 100
_EMPTY = "the calibration data are empty; give some examples of what the model sees"
HOLD_EVERY = 5  # one example of five is held out
LABELS = ("label", "labels", "label_ids", "target", "targets", "start_positions", "end_positions")


class CalibrationSet:
    """Batches of inputs on the model's device and in its type, readable any number of times."""

    def __init__(
        self, source: Any, model: nn.Module, *, forward: Forward | None = None, seed: int = 0
    ) -> None:
        if forward is not None and not callable(forward):
            raise ArgumentError(f"forward={forward!r}; give a function of the model and a batch")
        if not is_whole(seed) or not 0 <= seed < 2**63:
            raise ArgumentError(f"seed={seed!r}; give a whole number from 0 to 2**63 - 1")
        self._source = _rereadable(source, model)
        self._model = model
        self._forward = forward
        self._picks = torch.randint(
            HOLD_EVERY, (1009,), generator=torch.Generator().manual_seed(seed)
        ).tolist()
        self._looks: dict[int, tuple[Any, ...]] = {}
        self._picks[0] = 1  # two examples are enough to hold one out
        tensors = [*model.parameters(), *model.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    def batches(self, part: Part = "all", limit: int | None = None) -> Iterator[Example]:
        """The examples of one part in batches, in order; at most `limit` of them."""
        seen = given = 0
        for number, raw in enumerate(self.raw()):
            example = self.convert(raw, number)
            self._check_same(number, example)
            size = batch_size(example)
            chosen = self._chosen(part, seen, size)
            seen += size
            if limit is not None:
                chosen = chosen[: limit - given]
            given += len(chosen)
            if len(chosen):
                yield example if len(chosen) == size else take(example, chosen)
            if given == limit:
                return
        if seen == 0:
            raise DataError(_EMPTY)
        if given == 0:
            raise DataError(
                f"the calibration data hold {seen} example; give at least 2, because one of "
                f"{HOLD_EVERY} is held out"
            )

    def gathered(self, part: Part, most: int | None = None) -> Iterator[Example]:
        """The same in batches of about the usual size, however few of a batch are in the part.

        They hold at most `most` examples.
        """
        waiting: list[Example] = []
        for example in self.batches(part):
            count = sum(map(batch_size, waiting))
            full = count >= BATCH or count + batch_size(example) > (most or math.inf)
            if waiting and (full or not _alike(waiting[0], example)):
                yield from pieces(merge_batches(waiting), most)
                waiting = []
            waiting.append(example)
        if waiting:
            yield from pieces(merge_batches(waiting), most)

    def size(self) -> int | None:
        """How many batches there are, if that is known without reading them."""
        length = getattr(self._source, "__len__", None)
        try:
            return None if length is None else length()
        except TypeError:
            return None

    def expected(self) -> int | None:
        """How many examples there are to fit to, if that is known without reading them."""
        count = _counted(self._source)
        return None if count is None else max(1, count * (HOLD_EVERY - 1) // HOLD_EVERY)

    def raw(self) -> Iterator[Any]:
        """The batches as they were given."""
        return iter(self._source)

    def first(self) -> Example:
        """A few examples, to capture the model with."""
        example = next(iter(self.batches()))
        return take(example, torch.arange(min(batch_size(example), 4)))

    def examples_at(self, part: Part, chosen: Tensor, size: int) -> list[Example]:
        """These examples of one part, in ascending order, in batches of at most `size`."""
        ready: list[Example] = []
        waiting: list[Example] = []
        start = 0
        for example in self.batches(part):
            stop = start + batch_size(example)
            own = chosen[(chosen >= start) & (chosen < stop)] - start
            start = stop
            more = take(example, own)
            if waiting and len(own) and not _alike(waiting[0], more):
                ready.append(merge_batches(waiting))
                waiting = []
            while len(own):
                room = size - sum(map(batch_size, waiting))
                if not room:
                    ready.append(merge_batches(waiting))
                    waiting, room = [], size
                waiting.append(take(example, own[:room]))
                own = own[room:]
        return [*ready, merge_batches(waiting)] if waiting else ready

    def check_stable(self) -> None:
        """Refuse data that come in another order (or otherwise changed) each time they are read."""
        for _ in range(2):
            raw = next(self.raw(), None)
            if raw is None:
                raise DataError(_EMPTY)
            self._check_same(0, self.convert(raw))

    def _check_same(self, number: int, example: Example) -> None:
        """A batch must look as it did when it was read first."""
        first = next(iter(example.tensors()), torch.zeros(0))
        flat = first.reshape(-1)[:: max(1, first.numel() // 512)].double().cpu()
        places = torch.arange(1.0, len(flat) + 1, dtype=flat.dtype)  # so that order counts
        look = (tuple(first.shape), repr(float(flat @ places)), repr(float(flat.abs().sum())))
        if self._looks.setdefault(number, look) != look:
            raise ArgumentError(
                f"the calibration data change each time they are read (batch {number}: shuffled, "
                "or augmented at random), so that nothing can be held out; pass list(data), or "
                "turn that off"
            )

    def fingerprint(self) -> str:
        """A short digest of the batches read so far: shapes and sampled values."""
        return hashlib.sha256(repr(sorted(self._looks.items())).encode()).hexdigest()[:16]

    def count(self, part: Part = "all") -> int:
        """How many examples a part has."""
        return sum(batch_size(example) for example in self.batches(part))

    def _chosen(self, part: Part, start: int, size: int) -> Tensor:
        places = torch.arange(start, start + size)
        if part == "all":
            return places - start
        held = torch.tensor(
            [i % HOLD_EVERY == self._picks[i // HOLD_EVERY % 1009] for i in places.tolist()],
            dtype=torch.bool,
        )
        return torch.nonzero(held if part == "held" else ~held).reshape(-1)

    def convert(self, raw: Any, number: int = 0) -> Example:
        """A raw batch as inputs on the model's device and in its type."""
        if self._forward is not None:
            example = recorded(self._model, self._forward, raw)
        else:
            example = _without_cache(as_example(raw, self._model, number), self._model)
        return example.map(self._moved)

    def _moved(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(self.device, dtype)


def batch_size(example: Example) -> int:
    """How many examples a batch holds: the first dim of its first tensor."""
    sized = [tensor.shape[0] for tensor in example.tensors() if tensor.ndim]
    if not sized or sized[0] == 0:
        raise DataError("a calibration batch holds no example; give tensors with a batch dim")
    return sized[0]


def take(example: Example, index: Tensor) -> Example:
    """Some examples of a batch; tensors without the batch dim are shared."""
    size = batch_size(example)

    def chosen(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0 or tensor.shape[0] != size:
            return tensor
        return tensor[index.to(tensor.device)]

    return example.map(chosen)


def pieces(example: Example, most: int | None) -> list[Example]:
    """A batch in as many of about the same size as it takes to have at most `most` in each."""
    size = batch_size(example)
    if most is None or size <= most:
        return [example]
    each = -(-size // -(-size // most))

    def part(start: int) -> Example:
        return example.map(
            lambda t: t[start : start + each] if t.ndim and t.shape[0] == size else t
        )

    return [part(start) for start in range(0, size, each)]


def merge_batches(examples: list[Example]) -> Example:
    """Several batches as one."""
    if len(examples) == 1:
        return examples[0]
    sizes = [batch_size(example) for example in examples]
    trees = [pytree.tree_flatten((e.args, dict(e.kwargs))) for e in examples]

    def joined(*leaves: Any) -> Any:
        batched = all(
            isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == size
            for leaf, size in zip(leaves, sizes, strict=True)
        )
        return torch.cat(leaves) if batched else leaves[0]

    leaves = [joined(*column) for column in zip(*(leaves for leaves, _ in trees), strict=True)]
    args, kwargs = pytree.tree_unflatten(leaves, trees[0][1])
    return Example(args, kwargs)


def _alike(one: Example, other: Example) -> bool:
    """Whether two batches differ in nothing but their examples, and how many they are."""

    def looks(example: Example) -> list[Any]:
        size = batch_size(example)
        leaves = pytree.tree_leaves((example.args, dict(example.kwargs)))
        return [
            (leaf.shape[1:] if leaf.ndim and leaf.shape[0] == size else None, leaf.dtype)
            if isinstance(leaf, Tensor)
            else leaf
            for leaf in leaves
        ]

    mine, theirs = looks(one), looks(other)
    shared = any(isinstance(look, tuple) and look[0] is None for look in mine)
    return not shared and mine == theirs


def as_example(raw: Any, model: nn.Module, number: int = 0) -> Example:
    """What the model's forward takes, out of a batch as loaders make it."""
    raw = _plain(raw)
    if isinstance(raw, Example):
        return raw
    if isinstance(raw, Tensor):
        return Example((raw,))
    if isinstance(raw, Mapping):
        return Example((), _accepted(raw, model, number))
    if isinstance(raw, tuple | list) and raw:
        if isinstance(raw[0], Mapping):
            return as_example(raw[0], model, number)
        required = max(1, required_inputs(model))
        if len(raw) < required:
            raise DataError(
                f"calibration batch {number} has {len(raw)} inputs, but {type(model).__name__} "
                f"takes {required}; give them all, or pass forward="
            )
        return Example(tuple(raw[:required]))
    raise DataError(
        f"calibration batch {number} is a {type(raw).__name__}; give tensors, tuples or dicts of "
        "tensors, or pass forward=lambda model, batch: ..."
    )


def _without_cache(example: Example, model: nn.Module) -> Example:
    """Keep a language model from returning its cache, which is no output anyone compares."""
    if "use_cache" in example.kwargs or "use_cache" not in _parameters(model):
        return example
    return Example(example.args, {**example.kwargs, "use_cache": False})


class _Recorded(Exception):
    """Raised inside the model's call, once its inputs are known."""

    def __init__(self, example: Example) -> None:
        super().__init__()
        self.example = example


def recorded(model: nn.Module, forward: Forward, raw: Any) -> Example:
    """The inputs with which the user's own function calls the model."""

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise _Recorded(Example(args, kwargs))

    handle = model.register_forward_pre_hook(stop, with_kwargs=True, prepend=True)
    try:
        forward(model, raw)
    except _Recorded as stopped:
        return stopped.example
    finally:
        handle.remove()
    raise ArgumentError(
        "forward= returned without calling the model; call model(...) in it, as in "
        "forward=lambda model, batch: model(batch['pixels'])"
    )


def _rereadable(source: Any, model: nn.Module) -> Iterable[Any]:
    if isinstance(source, str | bytes) or source is None:
        raise ArgumentError(
            f"calibration is a {type(source).__name__}; give a tensor, a DataLoader or an iterable "
            "of batches"
        )
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        return DataLoader(source, batch_size=BATCH)
    if isinstance(source, DataLoader) and isinstance(source.sampler, RandomSampler):
        return _in_order(source)
    if isinstance(source, tuple):
        _check_tuple(source, model)
    if isinstance(source, Tensor | Mapping | tuple | Example) or type(source).__name__ == "ndarray":
        return _Split(source)
    if not isinstance(source, Iterable):
        raise ArgumentError(
            f"calibration is a {type(source).__name__}, which cannot be iterated over; give a "
            "tensor, a DataLoader or an iterable of batches"
        )
    return list(source) if isinstance(source, Iterator) else source


def _check_tuple(source: tuple[Any, ...], model: nn.Module) -> None:
    """A tuple is one batch, inputs first; refuse one that looks like several batches."""
    extra = source[max(1, required_inputs(model)) :]
    alike = [t for t in extra if isinstance(t, Tensor) and t.is_floating_point() and t.ndim > 1]
    if alike and isinstance(source[0], Tensor) and alike[0].shape[1:] == source[0].shape[1:]:
        raise ArgumentError(
            f"calibration is a tuple of {len(source)} tensors of like shape; a tuple is one batch "
            "(inputs first, then labels), so pass a list of batches instead"
        )


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader without shuffling; of as many examples."""
    dataset, sampler = loader.dataset, loader.sampler
    count = len(sampler)  # type: ignore[arg-type]
    if count < len(dataset):  # type: ignore[arg-type]
        dataset = Subset(dataset, range(count))
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
    )


class _Split:
    """One large batch, in smaller ones."""

    def __init__(self, whole: Any) -> None:
        plain = (whole.args, dict(whole.kwargs)) if isinstance(whole, Example) else _plain(whole)
        self._is_example = isinstance(whole, Example)
        self._leaves, self._spec = pytree.tree_flatten(plain)

    def count(self) -> int:
        """How many examples."""
        sizes = [leaf.shape[0] for leaf in self._leaves if isinstance(leaf, Tensor) and leaf.ndim]
        return sizes[0] if sizes else 0

    def __len__(self) -> int:
        return -(-self.count() // BATCH)

    def __iter__(self) -> Iterator[Any]:
        size = self.count()
        for start in range(0, size, BATCH):
            pieces = [
                leaf[start : start + BATCH]
                if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == size
                else leaf
                for leaf in self._leaves
            ]
            batch = pytree.tree_unflatten(pieces, self._spec)
            yield Example(*batch) if self._is_example else batch


def _counted(source: Any) -> int | None:
    """How many examples a source has, as far as it can be seen from outside."""
    if isinstance(source, _Split):
        return source.count()
    if isinstance(source, DataLoader):
        length = getattr(source.sampler, "__len__", None)
        return None if length is None else int(length())
    if not isinstance(source, list):
        return None
    total = 0
    for raw in source:
        leaves = pytree.tree_leaves(_plain(raw)) if not isinstance(raw, Example) else raw.tensors()
        sizes = [leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
        if not sizes:
            return None
        total += sizes[0]
    return total


def _plain(batch: Any) -> Any:
    """A batch with arrays as tensors, and any mapping as a dict."""
    if isinstance(batch, Example):
        return batch
    return pytree.tree_map(_tensor, dict(batch) if isinstance(batch, Mapping) else batch)


def _tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if type(leaf).__name__ == "ndarray" else leaf


def _accepted(batch: Mapping[str, Any], model: nn.Module, number: int) -> dict[str, Any]:
    parameters = _parameters(model)
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    inputs = {
        str(name): value
        for name, value in batch.items()
        if name not in LABELS and (open_ended or name in parameters)
    }
    if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(inputs)):
        raise DataError(
            f"calibration batch {number} has {', '.join(map(repr, batch))}, of which "
            f"{type(model).__name__} takes none ({', '.join(parameters)}); rename them, or pass "
            "forward=lambda model, batch: model(batch[...])"
        )
    return inputs


def required_inputs(model: nn.Module) -> int:
    """How many positional inputs a model cannot do without."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = _parameters(model).values()
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in given)


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters

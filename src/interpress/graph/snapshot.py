"""A snapshot of a model's state, to undo what its forward writes.

A forward may write buffers, re-assign them, renormalise an embedding, count its calls or cache a
value. None of that may leak into the user's model, or into the smaller copy made from it.
"""

from __future__ import annotations

import operator
import weakref
from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from interpress.errors import CaptureError

_written_parameters: weakref.WeakKeyDictionary[nn.Module, frozenset[str]] = (
    weakref.WeakKeyDictionary()
)
"""Per model, the parameters that its forward writes. The first snapshot of a model copies all of
them to find out; later ones copy only these."""


_IMMUTABLE = {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device}
_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes of every module: parameters, buffers, submodules and hooks."""
_SMALL = 2**20
"""Entries of a tensor or an array, among the attributes of a module, up to which it is copied."""
_COPIED = 2**30
"""Bytes of parameters up to which the first snapshot copies them all. Of a larger model it copies
only those that are known to be written, and refuses a forward that writes others."""


class Snapshot:
    """The attributes of every module of a model, and the values of tensors that may be written."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._attributes = [
            (module, {key: (v, _contents(v, key in _OF_TORCH)) for key, v in vars(module).items()})
            for module in model.modules()
        ]
        self._first = model not in _written_parameters
        parameters = dict(model.named_parameters())
        size = sum(p.numel() * p.element_size() for p in parameters.values())
        written = _written_parameters.get(model, frozenset()) | _renormalised(model)
        copies_all = self._first and size <= _COPIED
        copied = [
            *((name, p) for name, p in parameters.items() if copies_all or name in written),
            *model.named_buffers(),
        ]
        self._versions = {
            name: (parameter, parameter._version)
            for name, parameter in parameters.items()
            if size > _COPIED and name not in written and _is_plain(parameter)
        }
        self._tensors = {
            name: (tensor, tensor.data, tensor.detach().clone())
            for name, tensor in copied
            if _is_plain(tensor)
        }

    def restore(self) -> None:
        """Undo every change since the snapshot; calling it twice does no harm."""
        for module, attributes in self._attributes:
            _restore_attributes(module, attributes)
        changed = set()
        for name, (tensor, data, value) in self._tensors.items():
            with torch.no_grad():
                if tensor.dtype != value.dtype or tensor.shape != value.shape:
                    tensor.data = data
                if not torch.equal(tensor, value):
                    changed.add(name)
                    tensor.data.copy_(value)
        for name, (parameter, version) in self._versions.items():
            if parameter._version != version:
                raise CaptureError(
                    f"the model's forward writes its parameter {name!r}, and the model is too "
                    "large to keep a copy of all parameters; load its weights again, and let its "
                    "forward write buffers only"
                )
        if self._first:
            parameters = {name for name, _ in self._model.named_parameters()}
            known = _written_parameters.get(self._model, frozenset())  # from a nested snapshot
            _written_parameters[self._model] = known | (changed & parameters)


def runs_the_same_code(model: nn.Module, copy: nn.Module) -> None:
    """Note that the forward of a copy writes the parameters that the model's forward writes."""
    if model in _written_parameters:
        _written_parameters[copy] = _written_parameters[model]


def _renormalised(model: nn.Module) -> frozenset[str]:
    """Return the embeddings that are scaled down to a largest norm whenever they are looked up."""
    tables = (nn.Embedding, nn.EmbeddingBag)
    return frozenset(
        f"{name}.weight" if name else "weight"
        for name, module in model.named_modules()
        if isinstance(module, tables) and module.max_norm is not None
    )


def has_values(tensor: Tensor) -> bool:
    """Return whether a tensor holds numbers, and not only a shape."""
    return not tensor.is_meta and not isinstance(tensor, FakeTensor)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor can be copied and compared, which subclasses may not support."""
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and has_values(tensor)


def _contents(value: Any, shallow: bool = False) -> Any:
    """Return a copy of what a value holds, so that changes inside it can be undone.

    Containers are copied with the containers, tensors and arrays inside of them; if `shallow`,
    without. None if there is nothing to undo.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return None
    if isinstance(value, dict):
        return dict(value), [] if shallow else _inner(value.values())
    if kind in (list, set, deque):
        return list(value), [] if shallow else _inner(value)
    if kind is SimpleNamespace:
        return dict(vars(value)), _inner(vars(value).values())
    if kind is Tensor and value.numel() <= _SMALL and has_values(value):
        return value.detach().clone()
    if kind is np.ndarray and value.size <= _SMALL:
        return value.copy()
    return None


def _inner(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the values that hold something, with a copy of it."""
    found = [(value, _contents(value)) for value in values]
    return [(value, contents) for value, contents in found if contents is not None]


def _put_back(value: Any, contents: Any) -> None:
    """Give a value what it held before."""
    if isinstance(value, Tensor):
        if value.shape != contents.shape or not torch.equal(value.detach(), contents):
            value.data = contents.clone()
    elif isinstance(value, np.ndarray):
        value[...] = contents
    elif isinstance(value, SimpleNamespace):
        vars(value).clear()
        vars(value).update(contents[0])
    elif (value or contents[0]) and not _same_items(value, contents[0]):
        value.clear()
        (value.extend if isinstance(value, list | deque) else value.update)(contents[0])
    if isinstance(contents, tuple):
        for inner, inside in contents[1]:
            _put_back(inner, inside)


def _restore_attributes(module: nn.Module, attributes: dict[str, tuple[Any, Any]]) -> None:
    current = vars(module)
    for key in [key for key in current if key not in attributes]:
        del current[key]
    for key, (value, contents) in attributes.items():
        if current.get(key, _MISSING) is not value:
            current[key] = value
        if contents is not None:
            _put_back(value, contents)


_MISSING = object()


def _same_items(value: Any, contents: Any) -> bool:
    """Return whether a container still holds the same objects."""
    if len(value) != len(contents) or not all(map(operator.is_, value, contents)):
        return False
    return not isinstance(value, dict) or all(map(operator.is_, value.values(), contents.values()))

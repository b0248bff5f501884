"""`Call`: one node of a file while it is read, with its inputs and attributes.

An input is a *constant* (a `Tensor` that the file holds), a *tensor* that the network computes (an
`fx.Proxy`), or an array of *sizes* (a NumPy array of objects: integers, and proxies of integers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.fx import Proxy
from torch.utils import _pytree as pytree

from interpress.onnx_files.sizes import IMPLIED, FileInt, Place

aten = torch.ops.aten
_FLOATS = (1, 10, 11, 16)  # the element types of floating-point numbers in ONNX


class NotReadable(Exception):
    """A node that cannot be read, with the reason."""


@dataclass(frozen=True, eq=False)
class Call:
    """A node of a file that is being read."""

    node: Any
    """The `onnx.NodeProto`."""
    index: int
    """Its position in the file."""
    inputs: Sequence[Any]
    attributes: dict[str, Any]
    opset: int
    folds: bool
    """Whether all inputs are constants that are computed now, not in the network."""
    shape_of: Callable[[str], tuple[int | None, ...] | None]
    """The shape of a value by its name, as far as the file tells it."""
    type_of: Callable[[str], int | None]
    """The element type of a value by its name, as the number that ONNX gives it."""
    as_weight: Callable[[str, Tensor, bool], Proxy]
    """Registers a constant in the network, as a parameter or a buffer."""
    record: Callable[[Any, tuple[Any, ...], dict[str, Any]], Proxy]
    """Adds an operator to the network."""
    is_single_use: Callable[[str], bool]
    """Whether a value is read only once."""

    def refuse(self, reason: str) -> NoReturn:
        """Raise because this node cannot be read."""
        raise NotReadable(reason)

    def has(self, position: int) -> bool:
        """Return whether an optional input is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def constant(self, position: int) -> Tensor | None:
        """Return an input if it is a constant."""
        value = self.inputs[position] if self.has(position) else None
        return value if isinstance(value, Tensor) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute; its integers know their place in the file."""
        value = self.attributes.get(name, default)
        if name not in self.attributes:
            return value
        if type(value) is int:
            return FileInt(value, Place(self.index, name, 0))
        if isinstance(value, list) and all(type(item) is int for item in value):
            places = (Place(self.index, name, index) for index in range(len(value)))
            return [FileInt(item, place) for item, place in zip(value, places, strict=True)]
        return value

    def implied(self, size: int) -> int:
        """Return a size that PyTorch asks for, and that a file does not say."""
        return FileInt(size, Place(self.index, IMPLIED, 0))

    def tensor(self, position: int, *, buffer: bool = False) -> Any:
        """Return an input as a tensor of the network, or None if it is not given.

        A constant becomes a parameter, or a buffer if it is not trained.
        """
        value = self.inputs[position] if self.has(position) else None
        if isinstance(value, np.ndarray):
            value = self._stacked(value, self.is_float(self.node.input[position]))
        if isinstance(value, Tensor) and not self.folds:
            return self.as_weight(self.node.input[position], value, buffer)
        return value

    def operand(self, position: int) -> Any:
        """Return an input of element-wise arithmetic: a constant of one element is a number.

        A constant with a dim gives it to a scalar, so then it stays a tensor.
        """
        value = self.constant(position)
        if value is None or self.folds or value.numel() != 1:
            return self.tensor(position)
        other = self.shape(1 - position)
        fits = value.ndim == 0 or (value.ndim == 1 and other is not None and len(other) > 0)
        return value.item() if fits else self.tensor(position)

    def sizes(self, position: int) -> np.ndarray[Any, Any]:
        """Return an input as an array of numbers and symbols."""
        value = self.inputs[position] if self.has(position) else None
        if isinstance(value, Tensor):
            array = np.empty(value.numel(), dtype=object)
            for index, item in enumerate(value.reshape(-1).tolist()):
                integer = isinstance(item, int) and not isinstance(item, bool)
                place = Place(self.index, position, index)
                array[index] = FileInt(item, place) if integer else item
            return array.reshape(tuple(value.shape))
        if not isinstance(value, np.ndarray):
            self.refuse(f"its input {position} is computed from the data, but must be a size")
        return value

    def numbers(self, position: int) -> list[Any] | None:
        """Return an input as a flat list of numbers and symbols; None if it is not given."""
        return list(self.sizes(position).reshape(-1)) if self.has(position) else None

    def number(self, position: int) -> Any:
        """Return an input that is one number, or None if it is not given."""
        numbers = self.numbers(position)
        if numbers is None:
            return None
        if len(numbers) != 1:
            self.refuse(f"its input {position} has {len(numbers)} numbers, where one is expected")
        return numbers[0]

    def option(self, position: int, attribute: str) -> list[Any] | None:
        """Return integers that are an input since a newer opset, and were an attribute before."""
        if attribute in self.attributes:
            return list(self.attribute(attribute))
        return self.numbers(position)

    def shape(self, position: int) -> tuple[int | None, ...] | None:
        """Return the shape of an input as far as it is known; unknown sizes are None."""
        value = self.inputs[position]
        if isinstance(value, Tensor | np.ndarray):
            return tuple(value.shape)
        return self.shape_of(self.node.input[position])

    def rank(self, position: int) -> int:
        """Return the number of dims of an input."""
        shape = self.shape(position)
        if shape is None:
            self.refuse("the number of dims of its input is not known")
        return len(shape)

    def run(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a function of PyTorch in the network, or now if all its arguments are known."""
        leaves = pytree.tree_leaves((arguments, options))
        if any(isinstance(leaf, Proxy) for leaf in leaves):
            return self.record(function, arguments, options)
        return function(*arguments, **options)

    def size(self, tensor: Any, dim: int) -> Any:
        """Return the size of a dim of a tensor, which is a symbol if the network computes it."""
        return self.run(aten.sym_size.int, tensor, dim)

    def is_float(self, value: str) -> bool:
        """Return whether a value holds floating-point numbers."""
        return self.type_of(value) in _FLOATS

    def is_integer(self, position: int) -> bool:
        """Return whether an input holds whole numbers, as far as the file tells it."""
        constant = self.constant(position)
        if constant is not None:
            return not constant.is_floating_point()
        return self.type_of(self.node.input[position]) not in (None, *_FLOATS)

    def _stacked(self, array: np.ndarray[Any, Any], is_float: bool) -> Any:
        """Return an array of sizes as a tensor."""
        flat = list(array.reshape(-1))
        dtype = torch.float32 if is_float else torch.int64
        if not any(isinstance(item, Proxy) for item in flat):
            return torch.tensor([_plain(item) for item in flat], dtype=dtype).reshape(array.shape)
        scalars = [self.run(torch.scalar_tensor, item, dtype=dtype) for item in flat]
        stacked = self.run(aten.stack.default, scalars)
        return self.run(aten.reshape.default, stacked, list(array.shape))


def _plain(item: Any) -> Any:
    return int(item) if isinstance(item, FileInt) else item


def is_small(constant: Tensor) -> bool:
    """Return whether a constant is a number or a list of integers, rather than a weight."""
    return not constant.is_floating_point() or math.prod(constant.shape) == 1

"""Which arguments of ATen operators are sizes of their tensors, and what they are after a cut.

There is one function per kind of argument. An operator that is not listed has no sizes among its
arguments, or none that can change: its channels are frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interpress.labels.trace import Op, Value
from interpress.surgery.new_lengths import NewLengths

New = dict[str, Any]
"""Arguments of an operator after a cut, by name."""


def new_arguments(op: Op, lengths: NewLengths) -> New:
    """Return the arguments that are sizes, as they are after a cut."""
    family = op.family.removesuffix("_")
    function = _FUNCTIONS.get(op.family) or _FUNCTIONS.get(family)
    return function(op, lengths) if function is not None and op.outputs else {}


def gives_whole_shape(op: Op) -> bool:
    """Return whether an argument of the operator is the whole shape of its output."""
    return _FUNCTIONS.get(op.family) is _whole_shape and len(op.outputs) == 1


def _shape_name(op: Op) -> str:
    return "shape" if "shape" in op.arguments and "size" not in op.arguments else "size"


def _whole_shape(op: Op, lengths: NewLengths) -> New:
    """A shape of the whole output: of views, and of operators that make tensors."""
    value, name = op.outputs[0], _shape_name(op)
    sizes = op.get(name)
    if not isinstance(sizes, list | tuple) or len(sizes) != len(value.shape):
        return {}  # such as view(dtype)
    return {name: [_size(n, value, dim, lengths) for dim, n in enumerate(sizes)]}


def _size(number: Any, value: Value, dim: int, lengths: NewLengths) -> Any:
    return number if number == -1 else lengths.after(value, dim)


def _unflattened(op: Op, lengths: NewLengths) -> New:
    """The sizes of the dims that one dim becomes."""
    value = op.outputs[0]
    first = op["dim"] % len(op["self"].shape)
    sizes = enumerate(op["sizes"], start=first)
    return {"sizes": [_size(n, value, dim, lengths) for dim, n in sizes]}


def _pieces(op: Op, lengths: NewLengths) -> New:
    """The length of every piece, or one length for all of them."""
    dim = op["dim"] % len(op["self"].shape)
    after = [lengths.after(piece, dim) for piece in op.outputs]
    for name in ("split_size", "split_sizes"):
        if name in op.arguments:
            sizes = op[name]
            return {name: after[0] if isinstance(sizes, int) else after}
    if isinstance(op.get("indices"), list | tuple):
        return {"indices": [sum(after[: number + 1]) for number in range(len(op["indices"]))]}
    return {}


def _from_to(op: Op, lengths: NewLengths) -> New:
    """The start and the end of a slice, or its start and its length."""
    value, dim = op["self"], op["dim"] % len(op["self"].shape)
    new = {
        name: _position(op[name], value, dim, lengths)
        for name in ("start", "end")
        if isinstance(op.get(name), int)
    }
    if op.family == "aten.narrow":
        new["length"] = lengths.after(op.outputs[0], dim)
    return new


def _position(index: int, value: Value, dim: int, lengths: NewLengths) -> int:
    """Return where a position of a dim is after the cut; it may count from the end."""
    size = value.shape[dim]
    if index < 0:
        return lengths.before(value, dim, max(size + index, 0)) - lengths.after(value, dim) or index
    return lengths.before(value, dim, index) if index <= size else index


def _one_index(op: Op, lengths: NewLengths) -> New:
    """The position of the only index that is left of a dim."""
    value, dim = op["self"], op["dim"] % len(op["self"].shape)
    return {"index": _position(op["index"], value, dim, lengths)}


def _groups(op: Op, lengths: NewLengths) -> New:
    """The groups of a depthwise convolution: one per channel."""
    x = op["input"]
    depthwise = op["groups"] > 1 and op["groups"] == x.shape[1]
    return {"groups": lengths.after(x, 1)} if depthwise else {}


def _normalised(op: Op, lengths: NewLengths) -> New:
    """The shape of the last dims, over which a norm is taken."""
    x, shape = op["input"], op["normalized_shape"]
    first = len(x.shape) - len(shape)
    return {"normalized_shape": [lengths.after(x, first + i) for i in range(len(shape))]}


def _norm_groups(op: Op, lengths: NewLengths) -> New:
    """The groups of a norm with one group per channel."""
    x = op["input"]
    return {"num_groups": lengths.after(x, 1)} if op["num_groups"] == x.shape[1] else {}


def _padding(op: Op, lengths: NewLengths) -> New:
    """How much is added before and after every dim, the last dim first."""
    value, amounts = op.outputs[0], list(op["pad"])
    for number in range(0, len(amounts), 2):
        dim = len(value.shape) - 1 - number // 2
        before, after = amounts[number : number + 2]
        if before > 0:
            amounts[number] = lengths.before(value, dim, before)
        if after > 0:
            left = lengths.before(value, dim, value.shape[dim] - after)
            amounts[number + 1] = lengths.after(value, dim) - left
    return {"pad": amounts}


_KINDS: dict[Callable[[Op, NewLengths], New], str] = {
    _whole_shape: "view reshape _unsafe_view _reshape_alias expand broadcast_to zeros ones full "
    "empty rand randn new_zeros new_ones new_full new_empty",
    _unflattened: "unflatten",
    _pieces: "split split_with_sizes tensor_split",
    _from_to: "slice narrow",
    _one_index: "select",
    _groups: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution",
    _normalised: "layer_norm rms_norm native_layer_norm",
    _norm_groups: "group_norm",
    _padding: "pad constant_pad_nd",
}
_FUNCTIONS = {f"aten.{name}": kind for kind, names in _KINDS.items() for name in names.split()}

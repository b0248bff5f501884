"""Sums, means and other reductions."""

from __future__ import annotations

from typing import Any

import torch

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator

_REDUCTIONS = {
    "ReduceMean": aten.mean.dim,
    "ReduceSum": aten.sum.dim_IntList,
    "ReduceMax": aten.amax.default,
    "ReduceMin": aten.amin.default,
}


@operator(*_REDUCTIONS)
def reduce(call: Call) -> Any:
    """Read `ReduceMean`, `ReduceSum`, `ReduceMax` and `ReduceMin`."""
    axes = _axes(call)
    if axes is None:
        return call.tensor(0)
    if call.node.op_type == "ReduceMean" and call.is_integer(0):
        call.refuse("it takes the mean of whole numbers")
    keep = bool(call.attribute("keepdims", 1))
    return call.run(_REDUCTIONS[call.node.op_type], call.tensor(0), axes, keep)


@operator("ReduceL2", "ReduceL1")
def reduce_norm(call: Call) -> Any:
    """Read `ReduceL2` and `ReduceL1`."""
    axes, order = _axes(call), 2 if call.node.op_type == "ReduceL2" else 1
    if axes is None:
        return call.run(aten.abs.default, call.tensor(0))
    keep = bool(call.attribute("keepdims", 1))
    return call.run(aten.linalg_vector_norm.default, call.tensor(0), order, axes, keep)


@operator("ReduceSumSquare")
def reduce_sum_of_squares(call: Call) -> Any:
    """Read `ReduceSumSquare`."""
    axes, squares = _axes(call), call.run(aten.square.default, call.tensor(0))
    if axes is None:
        return squares
    return call.run(aten.sum.dim_IntList, squares, axes, bool(call.attribute("keepdims", 1)))


@operator("ReduceLogSumExp")
def reduce_logsumexp(call: Call) -> Any:
    """Read `ReduceLogSumExp`."""
    axes = _axes(call)
    if axes is None:
        return call.tensor(0)
    return call.run(
        aten.logsumexp.default, call.tensor(0), axes, bool(call.attribute("keepdims", 1))
    )


@operator("ReduceProd")
def reduce_product(call: Call) -> Any:
    """Read `ReduceProd`."""
    axes = _axes(call)
    if axes is None or len(axes) != 1:
        call.refuse("it multiplies over several dims")
    return call.run(aten.prod.dim_int, call.tensor(0), axes[0], bool(call.attribute("keepdims", 1)))


def _axes(call: Call) -> list[int] | None:
    """Return the dims to reduce; None if nothing is reduced."""
    axes = call.option(1, "axes")
    if axes:
        return [int(axis) for axis in axes]
    if call.attribute("noop_with_empty_axes", 0):
        return None
    return list(range(call.rank(0)))


@operator("ArgMax", "ArgMin")
def argument_of_extreme(call: Call) -> Any:
    """Read `ArgMax` and `ArgMin`."""
    if call.attribute("select_last_index", 0):
        call.refuse("it asks for the last of equal elements")
    function = torch.argmax if call.node.op_type == "ArgMax" else torch.argmin
    axis, keep = call.attribute("axis", 0), bool(call.attribute("keepdims", 1))
    return call.run(function, call.tensor(0), axis, keep)


@operator("CumSum")
def cumulative_sum(call: Call) -> Any:
    """Read `CumSum`."""
    if call.attribute("exclusive", 0) or call.attribute("reverse", 0):
        call.refuse("it is exclusive or reversed")
    return call.run(aten.cumsum.default, call.tensor(0), int(call.number(1)))

"""Normalisations: per channel they are carried, over channels they freeze."""

from __future__ import annotations

from dataclasses import replace

from interpress.graph.labels import Layers
from interpress.graph.relations import align, mix, uniform
from interpress.graph.trace import Op, Value
from interpress.ops.pointwise import reshaped
from interpress.ops.registry import rule


def _channelwise(op: Op, x: Value, names: tuple[str, ...]) -> Layers:
    vectors = [op.get(name) for name in names]
    spatial = range(2, len(x.shape))
    result = replace(x, layers=uniform(op, x, spatial))
    for vector in vectors:
        if isinstance(vector, Value):
            shape = (1, vector.shape[0]) + (1,) * (len(x.shape) - 2)
            result = align(op, result, reshaped(vector, shape))
    return result.layers


@rule("aten.batch_norm", "aten.native_batch_norm", "aten.instance_norm", "aten.cudnn_batch_norm")
def batch_norm(op: Op) -> Layers | list[Layers]:
    """A scale, a shift and two statistics for every channel, which is dim 1."""
    layers = _channelwise(op, op["input"], ("weight", "bias", "running_mean", "running_var"))
    return [layers, (), ()] if op.family == "aten.native_batch_norm" else layers


@rule("aten.layer_norm", "aten.rms_norm", "aten.native_layer_norm")
def layer_norm(op: Op) -> Layers | list[Layers]:
    """Statistics over the last dims: those are coupled."""
    x = op["input"]
    vectors = [v for v in (op.get("weight"), op.get("bias")) if isinstance(v, Value)]
    kind = "LayerNorm" if op.family != "aten.rms_norm" else "RMSNorm"
    normalized = range(len(x.shape) - len(op["normalized_shape"]), len(x.shape))
    layers = mix(op, align(op, x, *vectors), normalized, f"couples its channels ({kind})")
    return [layers, (), ()] if op.family == "aten.native_layer_norm" else layers


@rule("aten.group_norm")
def group_norm(op: Op) -> Layers:
    """Statistics over groups of channels, unless every channel is its own group."""
    x = op["input"]
    if op["num_groups"] == x.shape[1]:
        return _channelwise(op, x, ("weight", "bias"))
    layers = _channelwise(op, x, ("weight", "bias"))
    return mix(op, replace(x, layers=layers), [1], "couples its channels (GroupNorm)")

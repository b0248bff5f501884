"""Normalisations: per-channel statistics carry channels, statistics over channels freeze them."""

from __future__ import annotations

from dataclasses import replace

from interpress.labels.labelling import Labellings
from interpress.labels.relations import align, mix, uniform, without
from interpress.labels.trace import Op, Value
from interpress.ops.pointwise import reshaped
from interpress.ops.registry import rule


def _channelwise(op: Op, x: Value, names: tuple[str, ...]) -> Labellings:
    """Align the named vectors, with one number per channel, with dim 1 of `x`."""
    vectors = [op.get(name) for name in names]
    spatial = range(2, len(x.shape))
    result = replace(x, labellings=uniform(op, x, spatial))
    for vector in vectors:
        if isinstance(vector, Value):
            shape = (1, vector.shape[0]) + (1,) * (len(x.shape) - 2)
            result = align(op, result, reshaped(vector, shape))
    return result.labellings


@rule("aten.batch_norm", "aten.native_batch_norm", "aten.instance_norm", "aten.cudnn_batch_norm")
def batch_norm(op: Op) -> Labellings | list[Labellings]:
    """Carry the scale, the shift and the running statistics of every channel, which is dim 1."""
    labellings = _channelwise(op, op["input"], ("weight", "bias", "running_mean", "running_var"))
    extra_outputs = {"aten.native_batch_norm": 2, "aten.cudnn_batch_norm": 3}.get(op.family, 0)
    return [labellings, *[()] * extra_outputs] if extra_outputs else labellings


@rule("aten.layer_norm", "aten.rms_norm", "aten.native_layer_norm")
def layer_norm(op: Op) -> Labellings | list[Labellings]:
    """Freeze the last dims, over which the statistics are computed."""
    x = op["input"]
    vectors = [v for v in (op.get("weight"), op.get("bias")) if isinstance(v, Value)]
    kind = "LayerNorm" if op.family != "aten.rms_norm" else "RMSNorm"
    normalized = range(len(x.shape) - len(op["normalized_shape"]), len(x.shape))
    labellings = mix(op, align(op, x, *vectors), normalized, f"couples its channels ({kind})")
    if op.family != "aten.native_layer_norm":
        return labellings
    statistics = without(labellings, normalized, len(x.shape))  # mean and rstd keep these dims
    return [labellings, statistics, statistics]


@rule("aten.group_norm")
def group_norm(op: Op) -> Labellings:
    """Freeze the channels, whose statistics are computed per group; carry groups of one channel."""
    x = op["input"]
    labellings = _channelwise(op, x, ("weight", "bias"))
    if op["num_groups"] == x.shape[1]:
        return labellings
    return mix(op, replace(x, labellings=labellings), [1], "couples its channels (GroupNorm)")

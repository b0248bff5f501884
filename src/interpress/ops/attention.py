"""Fused attention: two matrix products with a softmax between them."""

from __future__ import annotations

import string
from dataclasses import replace

from interpress.labels.contraction import Operand, contract
from interpress.labels.labelling import Labellings
from interpress.labels.movement import interleave
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import Term, flops, rule


@rule("aten.scaled_dot_product_attention")
def attention(op: Op) -> Labellings:
    """Follow `softmax(query @ key.T) @ value`, per head."""
    query, key, value = op["query"], op["key"], op["value"]
    batch = string.ascii_letters[: len(query.shape) - 2]
    repeats = query.shape[-3] // key.shape[-3] if op.get("enable_gqa") else 1
    scores = contract(
        op,
        Operand("query", query, batch + "LE"),
        Operand("key", _repeated(key, repeats), batch + "SE", key),
        batch + "LS",
        scaled_by_width=op.get("scale") is None,
    )
    shape = (*query.shape[:-1], key.shape[-2])
    weights = Value(shape, scores)
    mask = op.get("attn_mask")
    if mask is not None:
        weights = align(op, weights, mask)
    weights = replace(weights, labellings=without(mix(op, weights, [-1]), [-1], len(shape)))
    return contract(
        op,
        Operand("scores", weights, batch + "LS"),
        Operand("value", _repeated(value, repeats), batch + "SV", value),
        batch + "LV",
    )


def _repeated(value: Value, times: int) -> Value:
    """Return keys or values with every head repeated for the query heads that share it."""
    if times == 1:
        return value
    dim = len(value.shape) - 3
    labellings = tuple(interleave(labelling, times, dim) for labelling in value.labellings)
    shape = (*value.shape[:dim], value.shape[dim] * times, *value.shape[dim + 1 :])
    return replace(value, shape=shape, labellings=labellings)


@flops("aten.scaled_dot_product_attention")
def attention_flops(op: Op) -> list[Term]:
    """Return the cost of the two products; the softmax is not counted."""
    query, key, value = op["query"], op["key"], op["value"]
    rows = tuple((query, dim) for dim in range(len(query.shape) - 1))
    keys = (key, len(key.shape) - 2)
    return [
        (2, (*rows, keys, (query, len(query.shape) - 1))),
        (2, (*rows, keys, (value, len(value.shape) - 1))),
    ]

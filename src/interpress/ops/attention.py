"""Fused attention: two matrix products with a softmax between them."""

from __future__ import annotations

import string
from dataclasses import replace

from interpress.labels.contraction import Operand, contract
from interpress.labels.copies import counting, may_be_groups, repeated
from interpress.labels.labelling import Labellings
from interpress.labels.movement import interleave
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import Term, flops, rule


@rule("aten.scaled_dot_product_attention")
def attention(op: Op) -> Labellings:
    """Follow `softmax(query @ key.T) @ value`, per head."""
    query, key = op["query"], op["key"]
    batch = string.ascii_letters[: len(query.shape) - 2]
    repeats = query.shape[-3] // key.shape[-3] if op.get("enable_gqa") else 1
    scores = contract(
        op,
        Operand("query", query, batch + "LE"),
        _shared(op, "key", repeats, batch + "SE"),
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
        _shared(op, "value", repeats, batch + "SV"),
        batch + "LV",
    )


def _shared(op: Op, argument: str, times: int, letters: str) -> Operand:
    """Return keys or values with every head repeated for the query heads that share it."""
    value: Value = op[argument]
    dim = len(value.shape) - 3
    if times == 1:
        return Operand(argument, value, letters)
    if may_be_groups(value, dim):
        places = counting(op, 1, 0, times)
        op.implied.append(Value((times,), (places,)))
        members, copies = repeated(op, value, dim, places)
        return Operand(argument, members, letters, value, copies)
    labellings = tuple(interleave(labelling, times, dim) for labelling in value.labellings)
    shape = (*value.shape[:dim], value.shape[dim] * times, *value.shape[dim + 1 :])
    return Operand(argument, replace(value, shape=shape, labellings=labellings), letters, value)


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

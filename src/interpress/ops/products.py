"""Sums of products: linear layers, matrix products, einsum."""

from __future__ import annotations

import string
from dataclasses import replace

from interpress.labels.contraction import Operand, contract
from interpress.labels.labelling import Labellings
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import Term, flops, rule


@rule("aten.linear")
def linear(op: Op) -> Labellings:
    """Follow `x @ weight.T + bias`."""
    x, weight, bias = op["input"], op["weight"], op.get("bias")
    lead = string.ascii_letters[: len(x.shape) - 1]
    labellings = contract(
        op, Operand("input", x, lead + "Y"), Operand("weight", weight, "ZY"), lead + "Z"
    )
    if bias is None:
        return labellings
    return align(op, Value((*x.shape[:-1], weight.shape[0]), labellings), bias).labellings


@flops("aten.linear")
def linear_flops(op: Op) -> list[Term]:
    """Count two per output element and input feature."""
    return [(2, (*_all_dims(op.outputs[0]), (op["weight"], 1)))]


def _all_dims(value: Value) -> tuple[tuple[Value, int], ...]:
    return tuple((value, dim) for dim in range(len(value.shape)))


def _product(op: Op, first: str, second: str) -> tuple[Labellings, tuple[int, ...]]:
    """Return the labellings and the shape of a matrix product, as `torch.matmul` broadcasts it."""
    x, y = op[first], op[second]
    x_ndim, y_ndim = len(x.shape), len(y.shape)
    batch = string.ascii_letters[: max(x_ndim, y_ndim, 2) - 2]
    x_letters = ("" if x_ndim == 1 else batch[len(batch) - (x_ndim - 2) :] + "X") + "Y"
    y_letters = batch[len(batch) - (y_ndim - 2) :] + "YZ" if y_ndim > 1 else "Y"
    out = batch + ("X" if x_ndim > 1 else "") + ("Z" if y_ndim > 1 else "")
    x_sizes = dict(zip(x_letters, x.shape, strict=True))
    y_sizes = dict(zip(y_letters, y.shape, strict=True))
    broadcast = {le: max(x_sizes.get(le, 1), y_sizes.get(le, 1)) for le in batch}
    sizes = y_sizes | x_sizes | broadcast
    labellings = contract(op, Operand(first, x, x_letters), Operand(second, y, y_letters), out)
    return labellings, tuple(sizes[letter] for letter in out)


_NAMES = {
    "aten.matmul": ("self", "other"),
    "aten.mm": ("self", "mat2"),
    "aten.bmm": ("self", "mat2"),
    "aten.mv": ("self", "vec"),
    "aten.dot": ("self", "tensor"),
    "aten.addmm": ("mat1", "mat2"),
    "aten.baddbmm": ("batch1", "batch2"),
}


@rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(op: Op) -> Labellings:
    """Follow a (batched) matrix product."""
    return _product(op, *_NAMES[op.family])[0]


@rule("aten.addmm", "aten.baddbmm")
def addmm(op: Op) -> Labellings:
    """Follow a matrix product that is added to `self`."""
    labellings, shape = _product(op, *_NAMES[op.family])
    return align(op, Value(shape, labellings), op["self"]).labellings


@flops("aten.matmul", "aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.mv", "aten.dot")
def matmul_flops(op: Op) -> list[Term]:
    """Count two per output element and summed index; products with a vector are not counted."""
    first, second = _NAMES[op.family]
    if len(op[second].shape) == 1:
        return []
    return [(2, (*_all_dims(op.outputs[0]), (op[first], len(op[first].shape) - 1)))]


_GROUPED = ("transformers.grouped_mm_fallback", "aten._grouped_mm")
"""Products in which the rows of every group have a matrix of their own, as the tokens of an expert
in a mixture of experts. Their operands are (rows, in), (groups, in, out) and the ends of groups."""


@rule(*_GROUPED)
def grouped_product(op: Op) -> Labellings:
    """Freeze the channels of all experts: each expert would need a selection of its own."""
    x, weight = op.inputs()[:2]
    reason = (
        f"{op.location} reads the weights of all experts as one tensor; fused experts are left "
        "whole, so ask for a budget that the other layers can meet"
    )
    op.trace.produced += [la.labels for la in weight.channels() if la.support[-1] == 2]
    for value in (x, weight):
        for labelling in value.labellings:
            op.trace.freeze(labelling.labels, reason)
    return ()


@flops(*_GROUPED)
def grouped_product_flops(op: Op) -> list[Term]:
    """Count two per output element and summed index: a row belongs to one expert."""
    x = op.inputs()[0]
    return [(2, (*_all_dims(op.outputs[0]), (x, len(x.shape) - 1)))]


def _tensordot_letters(op: Op) -> tuple[str, str, str]:
    """Return the letters of both operands and of the output."""
    x_ndim, y_ndim = (len(value.shape) for value in op.inputs())
    pairs = zip(op["dims_self"], op["dims_other"], strict=True)
    y_dim_of = {x_dim % x_ndim: y_dim % y_ndim for x_dim, y_dim in pairs}
    first = string.ascii_lowercase[:x_ndim]
    second = list(string.ascii_uppercase[:y_ndim])
    for x_dim, y_dim in y_dim_of.items():
        second[y_dim] = first[x_dim]
    out = [letter for dim, letter in enumerate(first) if dim not in y_dim_of]
    out += [letter for letter in second if letter.isupper()]
    return first, "".join(second), "".join(out)


@rule("aten.tensordot")
def tensordot(op: Op) -> Labellings:
    """Follow a sum over several pairs of dims."""
    first, second, out = _tensordot_letters(op)
    return contract(
        op, Operand("self", op["self"], first), Operand("other", op["other"], second), out
    )


@flops("aten.tensordot")
def tensordot_flops(op: Op) -> list[Term]:
    """Count two per output element and summed index."""
    ndim = len(op["self"].shape)
    summed = ((op["self"], dim % ndim) for dim in op["dims_self"])
    return [(2, (*_all_dims(op.outputs[0]), *summed))]


@rule("aten.einsum")
def einsum(op: Op) -> Labellings:
    """Follow an einsum of one or two operands; others freeze."""
    values = op.inputs()
    letters, out = _parse(op["equation"], values)
    has_diagonal = any(len(set(word)) != len(word) for word in letters)
    if len(values) > 2 or has_diagonal:
        why = "is an einsum of three or more operands, or with a diagonal; use einsums of two"
        for value in values:
            mix(op, value, range(len(value.shape)), why)
        return ()
    if len(values) == 1:
        summed = [dim for dim, letter in enumerate(letters[0]) if letter not in out]
        mixed = without(mix(op, values[0], summed), summed, len(letters[0]))
        value = replace(values[0], labellings=mixed)
        return Operand("", value, letters[0]).over(out).labellings
    x, y = (Operand(str(i), v, w) for i, (v, w) in enumerate(zip(values, letters, strict=True)))
    return contract(op, x, y, out)


def _parse(equation: str, values: list[Value]) -> tuple[list[str], str]:
    """Return the letters of the operands and of the output, with ellipses replaced by letters."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    words = inputs.split(",")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    widths = [
        len(value.shape) - len(word.replace("...", "")) if "..." in word else 0
        for word, value in zip(words, values, strict=True)
    ]
    dots = "".join(spare[: max(widths)])
    words = [
        word.replace("...", dots[len(dots) - width :])
        for word, width in zip(words, widths, strict=True)
    ]
    if not arrow:
        joined = "".join(words)
        once = sorted(letter for letter in set(joined) if joined.count(letter) == 1)
        out = dots + "".join(letter for letter in once if letter not in dots)
    return words, out.replace("...", dots)


@flops("aten.einsum")
def einsum_flops(op: Op) -> list[Term]:
    """Count two per output element and summed index, for operands that share a summed dim.

    Three or more operands are multiplied one after the other, as torch does.
    """
    values = op.inputs()
    letters, out = _parse(op["equation"], values)
    if len(values) > 2:
        return _flops_one_by_one(values, letters, out)
    if len(values) != 2:
        return []
    dim_of = {le: (v, d) for v, w in zip(values, letters, strict=True) for d, le in enumerate(w)}
    for value, word in zip(values, letters, strict=True):
        for dim, letter in enumerate(word):
            if value.shape[dim] > dim_of[letter][0].shape[dim_of[letter][1]]:
                dim_of[letter] = (value, dim)  # the other operand is broadcast along this letter
    summed = [le for le in dim_of if le not in out and all(le in word for word in letters)]
    if not summed:  # an element-wise product
        return []
    return [(2, tuple(dim_of[letter] for letter in [*out, *summed]))]


def _flops_one_by_one(values: list[Value], letters: list[str], out: str) -> list[Term]:
    """Return the FLOPs of the product of two operands, of that with the third, and so on."""
    dim_of = {le: (v, d) for v, w in zip(values, letters, strict=True) for d, le in enumerate(w)}
    left, terms = list(letters[0]), list[Term]()
    for number, word in enumerate(letters[1:], 1):
        later = {letter for other in letters[number + 1 :] for letter in other} | set(out)
        together = list(dict.fromkeys([*left, *word]))
        if any(letter in word and letter not in later for letter in left):  # a dim is summed
            terms.append((2, tuple(dim_of[letter] for letter in together)))
        left = [letter for letter in together if letter in later]
    return terms

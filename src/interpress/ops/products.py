"""Sums of products: linear layers, matrix products, einsum."""

from __future__ import annotations

import string
from dataclasses import replace

from interpress.labels.labelling import Labellings
from interpress.labels.relations import Operand, align, contract, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import Term, flops, rule


@rule("aten.linear")
def linear(op: Op) -> Labellings:
    """`x @ weight.T + bias`."""
    x, weight, bias = op["input"], op["weight"], op.get("bias")
    lead = string.ascii_letters[: len(x.shape) - 1]
    labellings = contract(
        op, Operand("input", x, lead + "Y"), Operand("weight", weight, "ZY"), lead + "Z"
    )
    return _plus(op, labellings, (*x.shape[:-1], weight.shape[0]), bias)


@flops("aten.linear")
def linear_flops(op: Op) -> list[Term]:
    """Two per output element and input feature."""
    return [(2, (*_all(op.outputs[0]), (op["weight"], 1)))]


def _plus(op: Op, labellings: Labellings, shape: tuple[int, ...], bias: Value | None) -> Labellings:
    return labellings if bias is None else align(op, Value(shape, labellings), bias).labellings


def _all(value: Value) -> tuple[tuple[Value, int], ...]:
    return tuple((value, dim) for dim in range(len(value.shape)))


def _product(op: Op, first: str, second: str) -> tuple[Labellings, tuple[int, ...]]:
    """Layers and shape of a matrix product under the rules of `torch.matmul`."""
    x, y = op[first], op[second]
    a, b = len(x.shape), len(y.shape)
    batch = string.ascii_letters[: max(a, b, 2) - 2]
    lx = ("" if a == 1 else batch[len(batch) - (a - 2) :] + "X") + "Y"
    ly = batch[len(batch) - (b - 2) :] + "YZ" if b > 1 else "Y"
    out = batch + ("X" if a > 1 else "") + ("Z" if b > 1 else "")
    sizes = dict(zip(ly, y.shape, strict=True)) | dict(zip(lx, x.shape, strict=True))
    for letter in batch:
        both = [dict(zip(le, v.shape, strict=True)).get(letter, 1) for le, v in ((lx, x), (ly, y))]
        sizes[letter] = max(both)
    labellings = contract(op, Operand(first, x, lx), Operand(second, y, ly), out)
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
    """A (batched) matrix product."""
    return _product(op, *_NAMES[op.family])[0]


@rule("aten.addmm", "aten.baddbmm")
def addmm(op: Op) -> Labellings:
    """A matrix product added to something."""
    labellings, shape = _product(op, *_NAMES[op.family])
    return align(op, Value(shape, labellings), op["self"]).labellings


@flops("aten.matmul", "aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.mv", "aten.dot")
def matmul_flops(op: Op) -> list[Term]:
    """Two per output element and summed position; products with a vector are not counted."""
    first, second = _NAMES[op.family]
    if len(op[second].shape) == 1:
        return []
    return [(2, (*_all(op.outputs[0]), (op[first], len(op[first].shape) - 1)))]


def _tensordot_letters(op: Op) -> tuple[str, str, str]:
    x, y = op.inputs()
    n, m = len(x.shape), len(y.shape)
    pairs = {d % n: e % m for d, e in zip(op["dims_self"], op["dims_other"], strict=True)}
    first = string.ascii_lowercase[:n]
    second = list(string.ascii_uppercase[:m])
    for d, e in pairs.items():
        second[e] = first[d]
    out = [le for d, le in enumerate(first) if d not in pairs]
    return first, "".join(second), "".join(out + [le for le in second if le.isupper()])


@rule("aten.tensordot")
def tensordot(op: Op) -> Labellings:
    """A sum over several pairs of dims."""
    first, second, out = _tensordot_letters(op)
    return contract(
        op, Operand("self", op["self"], first), Operand("other", op["other"], second), out
    )


@flops("aten.tensordot")
def tensordot_flops(op: Op) -> list[Term]:
    """Two per output element and summed position."""
    n = len(op["self"].shape)
    return [(2, (*_all(op.outputs[0]), *((op["self"], dim % n) for dim in op["dims_self"])))]


@rule("aten.einsum")
def einsum(op: Op) -> Labellings:
    """One or two operands; more at once are not followed."""
    values = op.inputs()
    letters, out = _parse(op["equation"], values)
    repeated = any(len(set(word)) != len(word) for word in letters)
    if len(values) > 2 or repeated:
        for value in values:
            mix(op, value, range(len(value.shape)), "is an einsum interpress does not follow")
        return ()
    if len(values) == 1:
        gone = [dim for dim, letter in enumerate(letters[0]) if letter not in out]
        mixed = without(mix(op, values[0], gone), gone, len(letters[0]))
        value = replace(values[0], labellings=mixed)
        return Operand("", value, letters[0]).over(out).labellings
    x, y = (Operand(str(i), v, w) for i, (v, w) in enumerate(zip(values, letters, strict=True)))
    return contract(op, x, y, out)


def _parse(equation: str, values: list[Value]) -> tuple[list[str], str]:
    """Letters of the operands and of the output, with ellipses spelt out."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    words = inputs.split(",")
    used = set(equation)
    spare = [letter for letter in string.ascii_letters if letter not in used]
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
    """Two per output element and summed position, for two operands that share a summed dim."""
    values = op.inputs()
    letters, out = _parse(op["equation"], values)
    if len(values) != 2:
        return []
    place = {le: (v, d) for v, w in zip(values, letters, strict=True) for d, le in enumerate(w)}
    for value, word in zip(values, letters, strict=True):
        for dim, letter in enumerate(word):
            if value.shape[dim] > place[letter][0].shape[place[letter][1]]:
                place[letter] = (value, dim)
    summed = [le for le in place if le not in out and all(le in word for word in letters)]
    if not summed:  # a plain product, element by element
        return []
    return [(2, tuple(place[letter] for letter in [*out, *summed]))]

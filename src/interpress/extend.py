"""Extend interpress: everything that a new operator rule needs, under one name.

A rule tells interpress how one operator moves channels. Register it with `rule`, and its cost with
`flops`:

    from interpress.extend import Labellings, Op, align, rule

    @rule("mylib.activation")
    def activation(op: Op) -> Labellings:
        return align(op, *op.inputs()).labellings

- Registration: `rule`, `flops` (a cost is a list of `Term`s).
- Records: `Op` (the call), `Value` (a tensor with its labels), `Labelling`, `Labellings`.
- Operators that do not move data: `align` (element-wise), `uniform` (sliding windows), `mix`
  (freeze dims), `without` (remove dims), `balance` (blocks that keep equally many channels),
  `contract` and its `Operand`s (sums of products).
- Operators that move data: `view`, `cut`, `take`, `join`, `interleave`.

The page "Adding an operator" of the documentation has a worked example.
"""

from __future__ import annotations

# Operators
from interpress.labels.contraction import Operand, contract
from interpress.labels.labelling import Labelling, Labellings
from interpress.labels.movement import cut, interleave, join, take, view
from interpress.labels.relations import align, balance, mix, uniform, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import Term, flops, rule

# Selections, allocations and budgets: import their names here and add them to `__all__`.

__all__ = [
    "Labelling",
    "Labellings",
    "Op",
    "Operand",
    "Term",
    "Value",
    "align",
    "balance",
    "contract",
    "cut",
    "flops",
    "interleave",
    "join",
    "mix",
    "rule",
    "take",
    "uniform",
    "view",
    "without",
]

"""Extend interpress: everything that a new operator, selection, allocation or budget needs.

**An operator.** A rule tells interpress how one operator moves channels. Register it with `rule`,
and its cost with `flops`:

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

**A selection** ranks the channels of a space: `selection`, `Profile`, `Ranking`, `ranked`.

**An allocation** is a path of widths: `allocation`, `Problem`, `Widths`, `greedy_path`,
`consumer_errors`.

**A budget** turns a number into a network: `budget`, `Search`, `Network`.

The tables `SELECTIONS`, `ALLOCATIONS` and `BUDGETS` list what is registered. `Cut`, `prove` and
`measure_taps` are for surgery by hand. The documentation has a worked example for each.
"""

from __future__ import annotations

from interpress.allocation.paths import greedy_path
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import ALLOCATIONS, allocation, consumer_errors
from interpress.budgets.registry import BUDGETS, budget
from interpress.budgets.search import Search
from interpress.labels.contraction import Operand, contract
from interpress.labels.labelling import Labelling, Labellings
from interpress.labels.movement import cut, interleave, join, take, view
from interpress.labels.relations import align, balance, mix, uniform, without
from interpress.labels.trace import Op, Value
from interpress.network.network import Network
from interpress.ops.registry import Term, flops, rule
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import SELECTIONS, selection
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import measure_taps, prove

__all__ = [
    "ALLOCATIONS",
    "BUDGETS",
    "SELECTIONS",
    "Cut",
    "Labelling",
    "Labellings",
    "Network",
    "Op",
    "Operand",
    "Problem",
    "Profile",
    "Ranking",
    "Search",
    "Term",
    "Value",
    "Widths",
    "align",
    "allocation",
    "balance",
    "budget",
    "consumer_errors",
    "contract",
    "cut",
    "flops",
    "greedy_path",
    "interleave",
    "join",
    "measure_taps",
    "mix",
    "prove",
    "ranked",
    "rule",
    "selection",
    "take",
    "uniform",
    "view",
    "without",
]

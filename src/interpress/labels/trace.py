"""Following channels through a captured graph: the facts that operators establish about labels.

`follow` runs the graph once on its example and, beside every value, works out its label layers by
the rules in `interpress.ops`. What the rules find out is collected in a `Trace` as plain lists of
label tensors: which labels are the same channel, which may not be dropped and why, which blocks
must keep equally many, and which products read a channel. `interpress.graph.spaces` draws the
conclusions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.program import Program, module_of
from interpress.labels.labelling import FIXED, Labelling, Labellings


@dataclass(eq=False)
class Value:
    """A tensor of the graph: its shape, its labels, and where it came from."""

    shape: tuple[int, ...]
    labellings: Labellings = ()
    weight: str | None = None
    """The name of the parameter or buffer this is, if it is one."""
    op: Op | None = None
    """The operator that made it, if one did."""
    itemsize: int = 4
    varying: frozenset[int] = frozenset()
    """Dims whose size follows the batch."""

    def channels(self) -> list[Labelling]:
        """The layers that name single channels."""
        return [labelling for labelling in self.labellings if not labelling.slab]

    def carries(self, ids: Tensor) -> bool:
        """Whether any of these labels occurs in this value."""
        return any(bool(torch.isin(labelling.labels, ids).any()) for labelling in self.labellings)


@dataclass(frozen=True, eq=False)
class Side:
    """One operand of a product, as it is read along its channels."""

    argument: str
    value: Value
    dims: tuple[int, ...]
    labels: Tensor
    """The operand's own labels over `dims`."""
    aligned: Tensor
    """(blocks, positions): labels where the product pairs them with the other operand's."""


@dataclass(frozen=True, eq=False)
class Read:
    """A sum over channels: two operands multiplied and summed along a labelled dim."""

    op: Op
    sides: tuple[Side, Side]
    scaled_by_width: bool = False
    """Whether the operator divides by the square root of the width it finds."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Channels spread over several dims, with a slab label for every index of each dim."""

    joint: Tensor
    slabs: tuple[Labelling, ...]


@dataclass(eq=False)
class Op:
    """One executed operator, with its arguments by name and tensors replaced by `Value`s."""

    node: fx.Node
    arguments: dict[str, Any]
    trace: Trace
    linear: bool = False
    """Whether the operator commutes with mixing channels: it moves or rescales, nothing else."""
    outputs: list[Value] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the operator's schema, or a default."""
        return self.arguments.get(name, default)

    @property
    def family(self) -> str:
        """The operator's name without its overload, as in `aten.linear`."""
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:
            return str(getattr(self.node.target, "__name__", self.node.target))
        return str(schema.name).replace("::", ".")

    @property
    def where(self) -> str:
        """The operator and the module it ran in, for messages."""
        module = module_of(self.node)
        return f"{self.family} at {module}" if module else self.family

    def inputs(self) -> list[Value]:
        """The tensors among the arguments."""
        leaves = pytree.tree_leaves(list(self.arguments.values()), is_leaf=is_value)
        return [leaf for leaf in leaves if is_value(leaf)]


@dataclass(eq=False)
class Trace:
    """Everything the operators' rules found out about the labels of one graph."""

    program: Program
    same: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    frozen: list[tuple[Tensor, str]] = field(default_factory=list)
    balanced: list[tuple[Tensor, str]] = field(default_factory=list)
    """(blocks, members): every block keeps equally many of its members."""
    grids: list[Grid] = field(default_factory=list)
    attached: list[Tensor] = field(default_factory=list)
    """Slab labels whose dim may lose whole slabs only."""
    parallel: list[Tensor] = field(default_factory=list)
    """Slab labels that index independent products, such as attention heads."""
    produced: list[Tensor] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    weights: dict[str, Value] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    finite: bool = True
    """Whether no output of the run was NaN."""
    size: int = 1
    slab_ids: list[Tensor] = field(default_factory=list)

    def fresh(self, count: int) -> Tensor:
        """New labels, never used before."""
        labels = torch.arange(self.size, self.size + count)
        self.size += count
        return labels

    def fresh_layers(self, shape: Iterable[int]) -> Labellings:
        """One layer of new labels for every dim longer than one."""
        sizes = tuple(shape)
        labellings = []
        for dim, size in enumerate(sizes):
            if size > 1:
                view = [1] * len(sizes)
                view[dim] = size
                labellings.append(Labelling(self.fresh(size).reshape(view)))
        return tuple(labellings)

    def unite(self, a: Tensor, b: Tensor, reason: str) -> None:
        """Labels at the same place are the same channel; none is where the other is fixed."""
        a, b = (t.reshape(-1) for t in torch.broadcast_tensors(a, b))
        differ = a != b
        a, b = a[differ], b[differ]
        loose = (a == FIXED) | (b == FIXED)
        if bool(loose.any()):
            self.freeze(torch.maximum(a[loose], b[loose]), reason)
        self.same.append((a[~loose], b[~loose]))

    def freeze(self, labels: Tensor, reason: str) -> None:
        """These channels may not be dropped."""
        labels = labels.reshape(-1)
        self.frozen.append((labels[labels != FIXED].unique(), reason))


def is_value(leaf: Any) -> bool:
    """Return whether an argument is a labelled tensor."""
    return isinstance(leaf, Value)

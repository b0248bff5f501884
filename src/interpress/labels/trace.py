"""The records that operator rules read and write: `Value`, `Op` and `Trace`.

`interpress.spaces.follow` runs a captured program once on its example and calls the rule of every
operator in `interpress.ops`. A rule returns the labellings of the operator's outputs. It also
writes facts into the `Trace` as plain lists of label tensors: which labels are the same channel,
which channels may not be dropped and why, which blocks must keep equally many channels, and which
products sum over a channel. `interpress.spaces` derives the channel spaces from these facts.
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
    """A tensor of the program: its shape, its labellings, and where it came from."""

    shape: tuple[int, ...]
    labellings: Labellings = ()
    weight: str | None = None
    """The name of the parameter or buffer, if this is one."""
    op: Op | None = None
    """The operator that computed this value, if one did."""
    itemsize: int = 4
    """Bytes per element."""
    varying: frozenset[int] = frozenset()
    """Dims whose size depends on the batch size."""

    def channels(self) -> list[Labelling]:
        """Return the labellings whose labels are single channels, that is, all but the slabs."""
        return [labelling for labelling in self.labellings if not labelling.slab]

    def carries(self, ids: Tensor) -> bool:
        """Return whether any of these labels occurs in this value."""
        return any(bool(torch.isin(labelling.labels, ids).any()) for labelling in self.labellings)


@dataclass(frozen=True, eq=False)
class Side:
    """One operand of a product that sums over channels."""

    argument: str
    """The name of the operator's argument."""
    value: Value
    dims: tuple[int, ...]
    """The dims of `value` that are summed over, or that index groups of channels."""
    labels: Tensor
    """The labels of `value` over `dims`."""
    aligned: Tensor
    """(blocks, positions): labels in the order in which the product pairs the two operands."""


@dataclass(frozen=True, eq=False)
class Read:
    """A sum over channels: two operands multiplied and summed along a labelled dim."""

    op: Op
    sides: tuple[Side, Side]
    scaled_by_width: bool = False
    """Whether the operator divides by the square root of the number of channels it sums over."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Channels that span several dims, with one slab label per index of each of these dims."""

    joint: Tensor
    slabs: tuple[Labelling, ...]


@dataclass(frozen=True, eq=False)
class Copies:
    """Heads that are repeated for the members of a group, as keys and values for query heads."""

    groups: Tensor | None
    """(G,) slab labels of the heads that are repeated; None if there is just one head."""
    members: Tensor
    """(G, M) slab labels of the repeated heads."""
    places: Tensor
    """(M,) slab labels of a dim that counts the members of a group."""
    joint: Tensor
    """(2, n) labels of copied channels, and the member that each belongs to."""
    copied: Tensor
    """(2, n) labels of copied channels, and the channel that each is a copy of."""
    where: str
    """The operator."""

    def originals(self, labels: Tensor) -> Tensor:
        """Return the labels with every copy replaced by what it is a copy of."""
        original = dict(zip(*self.copied.tolist(), strict=True))
        flat = [original.get(label, label) for label in labels.reshape(-1).tolist()]
        return torch.tensor(flat, dtype=torch.long).reshape(labels.shape)


@dataclass(eq=False)
class Op:
    """One executed operator: its arguments by name, with every tensor replaced by its `Value`."""

    node: fx.Node
    arguments: dict[str, Any]
    trace: Trace
    linear: bool = False
    """Whether the operator commutes with mixing channels: it only moves or rescales data."""
    outputs: list[Value] = field(default_factory=list)
    implied: list[Value] = field(default_factory=list)
    """Values that hold sizes which the operator knows, but none of its tensors has as a dim."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument by its name in the operator's schema, or the default."""
        return self.arguments.get(name, default)

    @property
    def family(self) -> str:
        """The operator's name without its overload, such as `aten.linear`."""
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:
            return str(getattr(self.node.target, "__name__", self.node.target))
        return str(schema.name).replace("::", ".")

    @property
    def location(self) -> str:
        """The operator and the module that called it, for messages."""
        module = module_of(self.node)
        return f"{self.family} at {module}" if module else self.family

    def inputs(self) -> list[Value]:
        """Return the tensors among the arguments, in order."""
        leaves = pytree.tree_leaves(list(self.arguments.values()), is_leaf=is_value)
        return [leaf for leaf in leaves if is_value(leaf)]


@dataclass(eq=False)
class Trace:
    """The facts that operator rules established about the labels of one program."""

    program: Program
    united: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Pairs of label vectors: labels at the same index are the same channel."""
    frozen: list[tuple[Tensor, str]] = field(default_factory=list)
    """Labels that may not be dropped, with the reason."""
    balanced: list[tuple[Tensor, str]] = field(default_factory=list)
    """(blocks, members) labels and an operator: every block keeps equally many of its members."""
    grids: list[Grid] = field(default_factory=list)
    """Channels that were split over several dims."""
    copies: list[Copies] = field(default_factory=list)
    """Heads that were repeated."""
    attached: list[Tensor] = field(default_factory=list)
    """Slab labels whose dim may lose whole slabs only."""
    parallel: list[Tensor] = field(default_factory=list)
    """Slab labels that index independent products, such as attention heads."""
    produced: list[Tensor] = field(default_factory=list)
    """Labels of channels that a weight computes as its output."""
    reads: list[Read] = field(default_factory=list)
    """Sums over channels."""
    ops: list[Op] = field(default_factory=list)
    """Every operator of the program, in order of execution."""
    weights: dict[str, Value] = field(default_factory=dict)
    """The parameters and buffers of the program, by name."""
    outputs: list[Value] = field(default_factory=list)
    """The tensors that the program returns."""
    finite: bool = True
    """Whether no output of the run was NaN."""
    size: int = 1
    """One more than the largest label in use."""
    slab_ids: list[Tensor] = field(default_factory=list)
    """Labels that name slabs instead of single channels."""

    def fresh(self, count: int) -> Tensor:
        """Return `count` labels that were never used before."""
        labels = torch.arange(self.size, self.size + count)
        self.size += count
        return labels

    def fresh_labellings(self, shape: Iterable[int]) -> Labellings:
        """Return one labelling with fresh labels for every dim longer than one."""
        sizes = tuple(shape)
        labellings = []
        for dim, size in enumerate(sizes):
            if size > 1:
                view = [1] * len(sizes)
                view[dim] = size
                labellings.append(Labelling(self.fresh(size).reshape(view)))
        return tuple(labellings)

    def unite(self, a: Tensor, b: Tensor, reason: str) -> None:
        """Record that labels at the same position are the same channel.

        A label that meets `FIXED` is frozen for `reason`.
        """
        a, b = (t.reshape(-1) for t in torch.broadcast_tensors(a, b))
        differ = a != b
        a, b = a[differ], b[differ]
        meets_fixed = (a == FIXED) | (b == FIXED)
        if bool(meets_fixed.any()):
            self.freeze(torch.maximum(a[meets_fixed], b[meets_fixed]), reason)
        self.united.append((a[~meets_fixed], b[~meets_fixed]))

    def freeze(self, labels: Tensor, reason: str) -> None:
        """Record that these channels may not be dropped."""
        labels = labels.reshape(-1)
        self.frozen.append((labels[labels != FIXED].unique(), reason))


def is_value(leaf: Any) -> bool:
    """Return whether an argument is a labelled tensor."""
    return isinstance(leaf, Value)

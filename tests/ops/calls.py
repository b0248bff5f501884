"""Calls of operators with every dim of their inputs labelled, and what the rules say about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.labels.labelling import Labellings
from interpress.labels.trace import Op, Trace, Value
from interpress.ops import registry


@dataclass(frozen=True)
class Call:
    """An ATen overload with its arguments by name."""

    overload: Any
    arguments: dict[str, Any]

    @classmethod
    def of(cls, name: str, *args: Any, **kwargs: Any) -> Call:
        """A call of `name` or `name.overload`."""
        family, _, overload_name = name.partition(".")
        overload = getattr(getattr(torch.ops.aten, family), overload_name or "default")
        names = [argument.name for argument in overload._schema.arguments]
        return cls(overload, dict(zip(names, args, strict=False)) | kwargs)

    @property
    def family(self) -> str:
        return self.overload._schema.name.replace("::", ".")

    @property
    def name(self) -> str:
        """The operator and, unless it is the default, its overload."""
        return str(self.overload).removeprefix("aten.").removesuffix(".default")

    def outputs(self) -> list[Tensor]:
        """The tensors that the operator returns."""
        return _tensors(self.overload(**self.arguments))

    def changed(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with other tensors."""
        arguments = pytree.tree_map(
            lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, self.arguments
        )
        return replace(self, arguments=arguments)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


class Followed:
    """A call whose rule was applied, with a labelling for every dim of its inputs.

    Integer tensors are indices and carry no labels. The batch dim of a convolution carries none
    either: its rule does not follow labels along dim 0 of the input.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.trace = call, Trace(None)  # type: ignore[arg-type]
        defaults = {
            argument.name: argument.default_value
            for argument in call.overload._schema.arguments
            if argument.has_default_value()
        }
        self.values: list[Value] = []
        arguments = defaults | pytree.tree_map(self._value, call.arguments)
        self.op = Op(fx.Graph().call_function(call.overload), arguments, self.trace)
        rule, self.op.linear = registry._find(self.op)
        result = rule(self.op)  # not `apply_rule`, which turns an error into a frozen space
        self.labellings: list[Labellings] = result if isinstance(result, list) else [result]

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        labelled = leaf.is_floating_point() or leaf.dtype == torch.bool
        shape = tuple(leaf.shape)
        labellings = self.trace.fresh_labellings(shape) if labelled else ()
        if "conv" in self.call.family and not self.values:
            labellings = tuple(la for la in labellings if la.support != (0,))
        name = f"weight{len(self.values)}" if self.values else None  # the first is an activation
        value = Value(shape, labellings, weight=name)
        if name is not None:
            self.trace.weights[name] = value
        self.values.append(value)
        return value

    @cached_property
    def channel(self) -> list[int]:
        """Per label, the smallest label of the same channel."""
        channel = list(range(self.trace.size))
        changed = True
        while changed:
            changed = False
            for a, b in self.trace.united:
                for one, other in zip(a.tolist(), b.tolist(), strict=True):
                    smallest = min(channel[one], channel[other])
                    changed |= channel[one] != channel[other]
                    channel[one] = channel[other] = smallest
        return channel

    def channels_of(self, labels: Tensor) -> Tensor:
        return torch.tensor(self.channel)[labels]

    @cached_property
    def bound(self) -> set[int]:
        """Channels that the operator may mix: they are frozen, summed over or all tied."""
        labels = [labels for labels, _ in self.trace.frozen]
        labels += [side.labels for read in self.trace.reads for side in read.sides]
        bound = {int(n) for part in labels for n in self.channels_of(part.reshape(-1))}
        for value in self.values:
            for labelling in value.channels():
                channels = set(self.channels_of(labelling.labels.reshape(-1)).tolist())
                bound |= channels if len(channels) == 1 else set()
        return bound

    def free(self) -> Iterator[tuple[int, list[Tensor]]]:
        """Channels that are not bound, each with a mask of its elements in every input."""
        channels = {
            int(number)
            for value in self.values
            for labelling in value.channels()
            for number in self.channels_of(labelling.labels.reshape(-1))
        }
        for number in sorted(channels - self.bound):
            yield number, [self.mask(v.shape, v.labellings, number) for v in self.values]

    def mask(self, shape: tuple[int, ...], labellings: Labellings, channel: int) -> Tensor:
        """The elements of a tensor that belong to a channel."""
        mask = torch.zeros(shape, dtype=torch.bool)
        for labelling in labellings:
            mask |= (self.channels_of(labelling.labels) == channel).expand(shape)
        return mask

"""The tensors of a model's output, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.errors import DataError
from interpress.graph.capture import register_outputs


@dataclass(frozen=True)
class OutputLayout:
    """The names of an output's tensors, and the structure that they are in.

    A name is a path: `logits` for a key or a field, `[0]` for an index, `heads.box` and `boxes[0]`
    for nested outputs. It is empty if the output is one bare tensor.
    """

    names: tuple[str, ...] = ("",)
    """In flattening order, as the program's output nodes are."""
    leaves: tuple[Any, ...] = field(default=(Tensor,), compare=False, repr=False)
    """All leaves of the structure, with the class `Tensor` in place of a tensor."""
    structure: Any = field(default=None, compare=False, repr=False)
    """How pytree puts the leaves together; None for one bare tensor."""

    def rebuild(self, tensors: Sequence[Tensor]) -> Any:
        """Return the output with other tensors, given in flattening order."""
        if len(tensors) != len(self.names):
            raise DataError(
                f"the network returns {len(tensors)} tensors, but {len(self.names)} were expected; "
                "return the same outputs for every batch"
            )
        if self.structure is None:
            return tensors[0]
        rest = iter(tensors)
        leaves = [next(rest) if leaf is Tensor else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)

    def aligned(self, output: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the tensors of another network's output in the order of these names."""
        if len(self.names) == len(output) == 1:
            return list(output.values())
        if set(self.names) != set(output):
            raise DataError(
                f"one network returns the outputs {listed(self.names)} and the other "
                f"{listed(output)}; compare networks with the same outputs"
            )
        return [output[name] for name in self.names]


def flatten_output(output: Any) -> tuple[dict[str, Tensor], OutputLayout]:
    """Return the tensors of an output by name, in flattening order, and their layout."""
    register_outputs(output)  # dataclasses
    try:
        paths, structure = pytree.tree_flatten_with_path(output)
        named = [(_name(path), leaf) for path, leaf in paths]
    except ValueError:  # a class that is registered without the names of its parts
        leaves, structure = pytree.tree_flatten(output)
        named = [(f"[{number}]", leaf) for number, leaf in enumerate(leaves)]
    tensors = {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}
    leaves = [Tensor if isinstance(leaf, Tensor) else leaf for _, leaf in named]
    return tensors, OutputLayout(tuple(tensors), tuple(leaves), structure)


def _name(path: Sequence[Any]) -> str:
    """Return a path such as `heads.box[0]`."""
    name = ""
    for part in path:
        key = getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))
        plain = isinstance(key, str) and key != "" and not re.search(r"[.\[\]]", key)
        name += f"{'.' if name else ''}{key}" if plain else f"[{key!r}]"
    return name


def natural_order(name: str) -> list[str | int]:
    """Return a sort key: alphabetical, and `[2]` before `[10]`."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def listed(names: Any) -> str:
    """Return names for an error message."""
    return ", ".join(map(repr, sorted(names, key=natural_order)))

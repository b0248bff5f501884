"""The inputs of one forward call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError


@dataclass(frozen=True)
class Example:
    """Positional and keyword inputs of one forward call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    mask: Tensor | None = None
    """(examples, positions...): which positions count, such as the tokens that are not padding.
    None if all count. It is not passed to the model."""

    @classmethod
    def of(cls, example: Any) -> Example:
        """Build an example from a tensor, a tuple of inputs, or a mapping of keyword inputs."""
        if isinstance(example, Example):
            return example
        if isinstance(example, Mapping):
            return cls((), {str(name): value for name, value in example.items()})
        if isinstance(example, tuple | list):
            return cls(tuple(example))
        if isinstance(example, Tensor):
            return cls((example,))
        raise ArgumentError(
            f"the example is a {type(example).__name__}; pass a tensor, a tuple of positional "
            "inputs, or a dict of keyword inputs"
        )

    def tensors(self) -> list[Tensor]:
        """Return every tensor among the inputs."""
        return [
            leaf
            for leaf in pytree.tree_leaves((self.args, dict(self.kwargs)))
            if isinstance(leaf, Tensor)
        ]

    def map(self, change: Callable[[Tensor], Tensor]) -> Example:
        """Return the same inputs with `change` applied to every tensor, the mask included."""
        args, kwargs = pytree.tree_map(
            lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return Example(args, kwargs, None if self.mask is None else change(self.mask))

    def call(self, model: nn.Module) -> Any:
        """Return the model's output on these inputs."""
        return model(*self.args, **self.kwargs)

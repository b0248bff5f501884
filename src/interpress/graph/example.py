"""The inputs of one forward call."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError
from interpress.graph.global_settings import users_device
from interpress.graph.on_device import OnDevice, compute_device


@dataclass(frozen=True)
class Example:
    """Positional and keyword inputs of one forward call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    masks: tuple[Tensor, ...] = ()
    """Each (examples, positions...): which positions count, such as the tokens that are not
    padding. All count where no mask has the shape. They are not passed to the model."""
    free_dims: frozenset[int] = frozenset()
    """Dims, besides the first one, whose size differs between batches, such as the length."""
    device: torch.device | None = None
    """Where to compute, if that is not where the model's weights live. The inputs are there."""

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
        """Return the same inputs with `change` applied to every tensor, the masks included."""
        args, kwargs = pytree.tree_map(
            lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return replace(self, args=args, kwargs=kwargs, masks=tuple(map(change, self.masks)))

    def at_home(self, model: nn.Module) -> Example:
        """Return the same inputs to compute with where the model lives."""
        if self.device is None:
            return self
        home = compute_device(model)
        return replace(self.map(lambda tensor: tensor.to(home)), device=None)

    def mask_for(self, output: Tensor) -> Tensor | None:
        """Return the mask that has the shape of an output's first dims; None if there is none."""
        fitting = (mask for mask in self.masks if mask.shape == output.shape[: mask.ndim])
        return next(fitting, None)

    def without_cache(self, model: nn.Module) -> Example:
        """Keep a language model from returning its key-value cache, which is not compared."""
        if "use_cache" in self.kwargs or not _takes_use_cache(model):
            return self
        return replace(self, kwargs={**self.kwargs, "use_cache": False})

    def call(self, model: nn.Module) -> Any:
        """Return the model's output on these inputs."""
        on_device = OnDevice(self.device) if self.device else contextlib.nullcontext()
        with users_device(), on_device:
            return model(*self.args, **self.kwargs)


def _takes_use_cache(model: nn.Module) -> bool:
    """Return whether a model passes `use_cache` on: by its name, or among its `**kwargs`.

    A wrapper that takes anything passes everything on to the model inside of it.
    """
    parameters = inspect.signature(model.forward).parameters
    if "use_cache" in parameters:
        return True
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return False
    if "past_key_values" in parameters:
        return True
    named = [p for p in parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    takes_anything = all(p.kind is inspect.Parameter.VAR_POSITIONAL for p in named)
    return takes_anything and any(_takes_use_cache(child) for child in model.children())

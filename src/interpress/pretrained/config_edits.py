"""Change the sizes in a config of transformers, and see which weights change their shape.

Nothing is known about the names of attributes. An attribute is tried: the model is built again from
the changed config, on the meta device, and the shapes of its weights are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import nn

Path = tuple[str, ...]
"""Where an attribute is: names of nested configs, then its own."""
Shapes = dict[str, tuple[int, ...]]


def has_config(model: nn.Module) -> bool:
    """Return whether a model can be built again from its config, as those of transformers can."""
    config = getattr(model, "config", None)
    return config is not None and hasattr(config, "to_dict") and hasattr(model, "save_pretrained")


@dataclass(frozen=True)
class Edit:
    """Attributes to multiply by the share of channels that is kept, or to set."""

    scaled: tuple[Path, ...]
    """Attributes that are multiplied."""
    unset: Path | None = None
    """An attribute without a value, which gets the number of kept channels."""

    def applied(self, config: Any, share: Fraction, width: int) -> Any | None:
        """Return a changed copy of a config; None if a value would not be a whole number."""
        changed = copy.deepcopy(config)
        values: dict[Path, Any] = {path: read(config, path) * share for path in self.scaled}
        if any(value.denominator != 1 or value < 1 for value in values.values()):
            return None
        if self.unset is not None:
            values[self.unset] = width
        try:
            for path, value in values.items():
                write(changed, path, int(value))
        except Exception:  # a config may check what it is given
            return None
        return changed


def read(config: Any, path: Path) -> Any:
    """Return the value of an attribute; a list of equal numbers counts as that number."""
    for name in path:
        config = getattr(config, name)
    is_list = isinstance(config, list) and config and len(set(map(str, config))) == 1
    return config[0] if is_list else config


def write(config: Any, path: Path, value: int | list[int]) -> None:
    """Set an attribute; every entry, if it is a list and the value is a number."""
    for name in path[:-1]:
        config = getattr(config, name)
    before = getattr(config, path[-1], None)
    if isinstance(before, list) and not isinstance(value, list):
        value = [value] * len(before)
    setattr(config, path[-1], value)


def listed(config: Any, path: Path) -> list[int] | None:
    """Return the entries of an attribute with one size per layer; None if it is another one."""
    for name in path:
        config = getattr(config, name, None)
    is_sizes = isinstance(config, list) and len(config) > 1 and all(type(n) is int for n in config)
    return list(config) if is_sizes else None


def has_lists(config: Any) -> bool:
    """Return whether some attribute of a config has one size per layer."""
    return any(listed(config, path) for path, _ in attributes(config))


def attributes(config: Any, prefix: Path = ()) -> Iterator[tuple[Path, int | None]]:
    """Yield the attributes of a config that are whole numbers above one, or not set."""
    for name, value in vars(config).items():
        path = (*prefix, name)
        if name.startswith("_") or name.endswith("_token_id"):
            continue
        if hasattr(value, "to_dict"):
            yield from attributes(value, path)
        elif value is None:
            yield path, None
        else:
            number = read(config, (name,))
            if isinstance(number, int) and not isinstance(number, bool) and number > 1:
                yield path, number


def shapes_of(model: nn.Module) -> Shapes:
    """Return the shapes of all parameters and buffers, by all their names."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def shapes_from(model: nn.Module, config: Any) -> Shapes | None:
    """Return the shapes of a model built from a config; None if none can be built."""
    try:
        with torch.device("meta"):
            return shapes_of(type(model)(config))
    except Exception:  # the model's own code; such a config does not describe a network
        return None


def changed_weights(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> set[str] | None:
    """Return the weights whose shapes differ; None if there are other weights."""
    if after is None or before.keys() != after.keys():
        return None
    return {name for name, shape in before.items() if after[name] != shape}

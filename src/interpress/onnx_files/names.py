"""Names of parameters, made from the names in a file."""

from __future__ import annotations

import keyword
import re

from torch import Tensor, nn

_GIVEN_BY_EXPORTER = re.compile(r"^(onnx::\w+|\d+|_v_\d+|val_\d+)$")
_ROLES = ("constant", "weight", "bias", "running_mean", "running_var")  # by the node's input


def parameter_name(value: str, node: str, position: int) -> str:
    """Return a dotted name for a constant that a node reads.

    It is the name in the file. If that is only a number, it is the path of the node, such as
    `layer1.conv1.weight` for `/layer1/conv1/Conv`.
    """
    if _GIVEN_BY_EXPORTER.match(value) and node:
        parts = [part for part in node.split("/") if part]
        if len(parts) > 1:
            # an inner path repeats the outer one: /layer1/layer1.0/conv1/Conv
            modules = [part for index, part in enumerate(parts[:-1])
                       if not parts[index + 1].startswith(f"{part}.")]  # fmt: skip
            role = _ROLES[position] if position < len(_ROLES) else "constant"
            return ".".join([*map(_identifier, ".".join(modules).split(".")), role])
    parts = [part for part in re.split(r"[./]+", value) if part]
    return ".".join(_identifier(part) for part in parts) or "constant"


def identifier(name: str, taken: set[str]) -> str:
    """Return a new name of an argument in Python, and add it to those that are taken."""
    base = candidate = _identifier(name)
    if base[0].isdigit():
        base = candidate = f"_{base}"
    number = 1
    while candidate in taken or keyword.iskeyword(candidate):
        number += 1
        candidate = f"{base}_{number}"
    taken.add(candidate)
    return candidate


def _identifier(part: str) -> str:
    return re.sub(r"\W+", "_", part).strip("_") or "_"


def register(root: nn.Module, name: str, tensor: Tensor) -> str:
    """Register a parameter or a buffer under a dotted name, or one like it that is free."""
    wanted, number = name, 1
    while not _is_free(root, name):
        number += 1
        name = f"{wanted}_{number}"
    *path, last = name.split(".")
    module = root
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        module.register_parameter(last, tensor)
    else:
        module.register_buffer(last, tensor)
    return name


def _is_free(root: nn.Module, name: str) -> bool:
    *path, last = name.split(".")
    module: nn.Module | None = root
    for part in path:
        if module is None:
            return True
        if part not in module._modules and hasattr(module, part):
            return False
        module = module._modules.get(part)
    return module is None or not hasattr(module, last)

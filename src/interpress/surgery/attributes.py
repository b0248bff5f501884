"""Making a smaller copy's attributes true again: `out_channels`, `num_heads`, `groups`, ...

PyTorch's own layers say their sizes in known attributes. Other modules keep sizes under names of
their own (`interpress.sizes`); which of them to change is decided by running the smaller network,
never by the name alone (`interpress.trial`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from interpress.surgery.cut import Cut
from interpress.surgery.size_attributes import (
    Sizes,
    Slot,
    Source,
    observe,
    options,
    with_numbers,
    write,
)

Choices = dict[Slot, Source | None]
"""Which source every ambiguous slot follows."""


def _convolution(module: Any) -> dict[str, int]:
    transposed = isinstance(module, _ConvTransposeNd)
    reads, makes = (0, 1) if transposed else (1, 0)
    groups = module.groups
    shape = module.weight.shape
    if groups > 1 and groups == module.in_channels:  # depthwise: one group per channel
        multiplier = module.out_channels // groups
        groups = shape[0] if transposed else shape[0] // multiplier
    width = {"groups": groups}
    width["in_channels"] = shape[reads] * (1 if transposed else groups)
    width["out_channels"] = shape[makes] * (groups if transposed else 1)
    return width


def _norm(module: Any) -> dict[str, int]:
    return {"num_features": len(module.weight)}


def _group_norm(module: Any) -> dict[str, int]:
    channels = len(module.weight)
    own = module.num_groups == module.num_channels
    return {"num_channels": channels} | ({"num_groups": channels} if own else {})


KNOWN: list[tuple[type[nn.Module], Callable[[Any], dict[str, int]]]] = [
    (_ConvNd, _convolution),
    (_NormBase, _norm),
    (nn.GroupNorm, _group_norm),
    (nn.Linear, lambda m: {"out_features": m.weight.shape[0], "in_features": m.weight.shape[1]}),
    (nn.Embedding, lambda m: {"embedding_dim": m.weight.shape[1]}),
    (nn.PReLU, lambda m: {"num_parameters": len(m.weight)}),
]
"""How PyTorch's own layers say their sizes."""
KNOWN_TYPES = tuple(kind for kind, _ in KNOWN)


def update_attributes(cut: Cut, smaller: nn.Module, choices: Choices | None = None) -> None:
    """Set the attributes of a smaller copy to its real sizes."""
    spaces = cut.spaces
    modules = dict(smaller.named_modules())
    for module in modules.values():
        for kind, sizes in KNOWN:
            if isinstance(module, kind) and getattr(module, "weight", None) is not None:
                for name, size in sizes(module).items():
                    setattr(module, name, size)
                break
    if not with_numbers(spaces.program.model, KNOWN_TYPES):
        return
    widths = {name: len(index) for name, index in cut.kept.items()}
    seen = observe(spaces, widths)
    chosen = dict(spaces.choices if choices is None else choices)
    for found in options(spaces, seen, KNOWN_TYPES):
        chosen.setdefault(found.slot, found.sources[0])
    for slot, source in chosen.items():
        for name, module in modules.items():
            if source is not None and type(module) is slot.kind:
                number = _lookup(seen, name, source)
                if number is not None:
                    write(module, slot, number)


def _lookup(seen: Sizes, module: str, source: Source) -> int | None:
    """The new size at a source, which may lie in a module below."""
    own = seen.get(module, {}).get(source)
    if own is None:
        path = f"{module}.{source[0]}" if module else str(source[0])
        own = seen.get(path, {}).get(source[1:])
    return None if own is None else own.after

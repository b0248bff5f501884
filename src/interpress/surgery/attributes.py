"""Update the sizes that modules store: `out_channels`, `num_heads`, `groups` and others.

PyTorch's own layers store their sizes in attributes that are listed here. Other modules may store
sizes under any name (`interpress.surgery.size_attributes`). Which of these have to change is
decided by running the smaller network (`interpress.dryrun`), not by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from interpress.surgery.cut import Cut
from interpress.surgery.graph_sizes import update_graph_sizes
from interpress.surgery.size_attributes import (
    Candidates,
    Sizes,
    Slot,
    Source,
    find_candidates,
    modules_with_integers,
    observe_sizes,
    write,
)

Choices = dict[Slot, Source | None]
"""The source that every ambiguous slot follows; None leaves the slot unchanged."""


def _convolution_sizes(module: Any) -> dict[str, int]:
    transposed = isinstance(module, _ConvTransposeNd)
    in_dim, out_dim = (0, 1) if transposed else (1, 0)
    groups = module.groups
    shape = module.weight.shape
    if groups > 1 and groups == module.in_channels:  # depthwise: one group per channel
        multiplier = module.out_channels // groups
        groups = shape[0] if transposed else shape[0] // multiplier
    return {
        "groups": groups,
        "in_channels": shape[in_dim] * (1 if transposed else groups),
        "out_channels": shape[out_dim] * (groups if transposed else 1),
    }


def _norm_sizes(module: Any) -> dict[str, int]:
    return {"num_features": len(module.weight)}


def _group_norm_sizes(module: Any) -> dict[str, int]:
    channels = len(module.weight)
    group_per_channel = module.num_groups == module.num_channels
    return {"num_channels": channels} | ({"num_groups": channels} if group_per_channel else {})


KNOWN: list[tuple[type[nn.Module], Callable[[Any], dict[str, int]]]] = [
    (_ConvNd, _convolution_sizes),
    (_NormBase, _norm_sizes),
    (nn.GroupNorm, _group_norm_sizes),
    (nn.Linear, lambda m: {"out_features": m.weight.shape[0], "in_features": m.weight.shape[1]}),
    (nn.Embedding, lambda m: {"embedding_dim": m.weight.shape[1]}),
    (nn.PReLU, lambda m: {"num_parameters": len(m.weight)}),
]
"""The size attributes of PyTorch's own layers, computed from their weights."""
KNOWN_TYPES = tuple(kind for kind, _ in KNOWN)


def update_attributes(cut: Cut, smaller: nn.Module) -> None:
    """Set the size attributes of a smaller copy to its actual sizes."""
    spaces = cut.spaces
    update_known_sizes(smaller)
    update_graph_sizes(cut, smaller)
    if not modules_with_integers(spaces.program.model, KNOWN_TYPES):
        return
    widths = {name: len(index) for name, index in cut.kept.items()}
    sizes = observe_sizes(spaces, widths)
    write_sizes(smaller, sizes, find_candidates(spaces, sizes, KNOWN_TYPES), dict(spaces.choices))


def update_known_sizes(smaller: nn.Module) -> None:
    """Set the size attributes of PyTorch's own layers to the sizes of their weights."""
    for module in smaller.modules():
        for kind, sizes_of in KNOWN:
            if isinstance(module, kind) and getattr(module, "weight", None) is not None:
                for name, size in sizes_of(module).items():
                    setattr(module, name, size)
                break


def write_sizes(
    smaller: nn.Module, sizes: Sizes, candidates: Iterable[Candidates], choices: Choices
) -> None:
    """Set the size attributes of all other modules.

    A slot without a choice follows its likeliest source.
    """
    chosen = {candidate.slot: candidate.sources[0] for candidate in candidates} | choices
    for slot, source in chosen.items():
        for name, module in smaller.named_modules():
            if source is not None and type(module) is slot.kind:
                number = _size_after(sizes, name, source)
                if number is not None:
                    write(module, slot, number)


def _size_after(sizes: Sizes, module: str, source: Source) -> int | None:
    """Return the new size at a source, which may be in a submodule."""
    size = sizes.get(module, {}).get(source)
    if size is None:
        submodule = f"{module}.{source[0]}" if module else str(source[0])
        size = sizes.get(submodule, {}).get(source[1:])
    return None if size is None else size.after

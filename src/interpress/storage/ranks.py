"""The ranks in a plan, checked against a freshly built original."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from interpress.checks import is_whole
from interpress.errors import StorageError
from interpress.surgery.thin_layers import DENSE_CLASSES, with_thin_layers


def checked_ranks(source: Path, record: Mapping[str, Any], model: nn.Module) -> dict[str, int]:
    """Return the layers that are two in the saved network, with their ranks.

    Plans of earlier versions have none.
    """
    ranks: dict[str, int] = dict((record.get("low_rank") or {}).get("ranks", {}))
    modules = dict(model.named_modules())
    for name, rank in ranks.items():
        module: Any = modules.get(name)
        if type(module) not in DENSE_CLASSES:
            raise StorageError(
                f"{source} says that {name!r} became two layers, but it is no linear layer or "
                "convolution of the model; build the original architecture, as it was before "
                "compression"
            )
        most = min(len(module.weight), module.weight[0].numel())
        if not is_whole(rank) or not 1 <= rank <= most:
            raise StorageError(
                f"{source} gives {name!r} the rank {rank!r}; it must be 1 to {most}. Save the "
                "result again"
            )
    return ranks


def with_ranks(model: nn.Module, ranks: Mapping[str, int]) -> nn.Module:
    """Return the original with thin layers in the place of some; itself if there are none."""
    return with_thin_layers(model, ranks) if ranks else model

"""`ExportedSource`: what is remembered of the program that a network was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn
from torch.export import ExportedProgram

_KEY = "interpress.exported"


@dataclass(frozen=True, eq=False)
class ExportedSource:
    """An exported program. It is never changed."""

    program: ExportedProgram
    name: str
    """What errors call it."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Texts that were saved with it, by name."""

    def __deepcopy__(self, memo: Any) -> ExportedSource:
        return self


def attach(network: fx.GraphModule, source: ExportedSource) -> None:
    """Remember the program of a network; copies of the network remember it too."""
    network.meta[_KEY] = source


def exported_source(network: nn.Module) -> ExportedSource | None:
    """Return the program that a network was read from, or None."""
    meta = getattr(network, "meta", None)
    source = meta.get(_KEY) if isinstance(meta, dict) else None
    return source if isinstance(source, ExportedSource) else None

"""`MethodOptions`: the options that say how to compress, as opposed to how far."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from interpress.registry import Registry

# The names for the help. The registries themselves import torch, which `--help` must not do.
METHOD_NAMES = ("preserve", "iterative-id", "constant-id")
SELECTION_NAMES = tuple(Registry[object]("selection", "interpress.selection.rules"))
ALLOCATION_NAMES = (
    "best",
    *Registry[object]("allocation", "interpress.allocation.rules"),
)

_method = functools.partial(typer.Option, metavar="NAME", rich_help_panel="Method")


@dataclass(frozen=True)
class MethodOptions:
    """A named method, and the parts of it to change."""

    method: Annotated[str, _method(help=f"One of: {', '.join(METHOD_NAMES)}.")] = "preserve"
    selection: Annotated[
        str | None,
        _method(
            help="Replace the method's rule for which channels to keep. One of: "
            f"{', '.join(SELECTION_NAMES)}."
        ),
    ] = None
    allocation: Annotated[
        str | None,
        _method(
            help="Replace the method's rule for how wide each layer becomes. One of: "
            f"{', '.join(ALLOCATION_NAMES)}."
        ),
    ] = None
    refit: Annotated[
        bool | None,
        _method(
            "--refit/--no-refit",
            metavar="",
            help="Re-solve the dense layers by least squares. Default: as the method does; off "
            "for --error.",
            show_default=False,
        ),
    ] = None

    def changes(self) -> dict[str, Any]:
        """Return the parts of the method that were given."""
        parts = {
            "selection": self.selection, "allocation": self.allocation, "refit": self.refit,
        }  # fmt: skip
        return {part: value for part, value in parts.items() if value is not None}

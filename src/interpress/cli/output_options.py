"""`OutputOptions`: which output of the network decides, and what it means."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

_output = functools.partial(typer.Option, rich_help_panel="Output")


@dataclass(frozen=True)
class OutputOptions:
    """The output that decides, and its kind."""

    output: Annotated[
        str | None,
        _output(
            metavar="NAME",
            help="The output that decides, if the network returns several tensors: a name such as "
            "logits or heads.box, or an index such as 0. Default: by name and shape.",
            show_default=False,
        ),
    ] = None
    kind: Annotated[
        str,
        _output(
            metavar="NAME",
            help="What it means: classification, segmentation, binary, decisions or regression. "
            "auto: by its shape.",
        ),
    ] = "auto"

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments `output` and `kind` of the Python functions."""
        is_index = self.output is not None and re.fullmatch(r"-?\d+", self.output)
        return {"output": int(self.output or 0) if is_index else self.output, "kind": self.kind}

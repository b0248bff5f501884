"""`ModelOptions`: the options that describe a network, and their checks."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from interpress.errors import ArgumentError

_model = functools.partial(typer.Option, rich_help_panel="Model")


@dataclass(frozen=True)
class ModelOptions:
    """Which network to build, its weights, and the device to run it on."""

    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A function that returns the network, as package.module:function or "
            "file.py:function; a model of timm, as timm:NAME; an ONNX or .pt2 file; or a Hugging "
            "Face model: its folder, or its name if it is on this disk.",
            show_default=False,
        ),
    ]
    arguments: Annotated[
        list[str] | None,
        _model(
            "--model-arg",
            metavar="KEY=VALUE",
            help="Keyword argument of the function, or of the timm model; repeatable.",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        _model(help="Trained weights: .safetensors, or .pt, .pth, .bin with a state dict."),
    ] = None
    device: Annotated[str, _model(help="Where to run: cpu, cuda, cuda:1, mps.")] = "cpu"

    def __post_init__(self) -> None:
        if not self.name:
            raise ArgumentError("MODEL is empty; give package.module:function or file.py:function")
        self.keywords()

    def keywords(self) -> dict[str, Any]:
        """Return `--model-arg` as keyword arguments; a value is JSON, or else a string."""
        keywords: dict[str, Any] = {}
        for argument in self.arguments or ():
            key, separator, value = argument.partition("=")
            if not separator or not key.isidentifier():
                raise ArgumentError(
                    f"--model-arg {argument!r}; give KEY=VALUE, such as num_classes=10"
                )
            try:
                keywords[key] = json.loads(value)
            except json.JSONDecodeError:
                keywords[key] = value
        return keywords

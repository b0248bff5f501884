"""`CompressOptions`: what only `compress` takes, besides the budget."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Leave these layers unchanged: a name or a pattern such as 'layer4.*'; repeatable.",
        rich_help_panel="Layers",
    ),
]
PartName = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="NAME",
        help="Compress only this module, such as backbone, if the whole model cannot be captured. "
        "The data are inputs of the whole.",
        show_default=False,
        rich_help_panel="Layers",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(help="Minutes of distillation. Default: 2.", show_default=False),
]
_layers = functools.partial(typer.Option, rich_help_panel="Layers")
_large = functools.partial(typer.Option, rich_help_panel="Large networks")


@dataclass(frozen=True)
class CompressOptions:
    """Where to write the result, and limits on the layers."""

    out: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)]
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Replace an earlier result.")
    ] = False
    evaluation: Annotated[
        Path | None,
        typer.Option(help="More data, prepared like --data, to evaluate on in the report."),
    ] = None
    examples: Annotated[
        bool,
        typer.Option(
            "--examples",
            metavar="",
            help="Put examples whose decision changed into the report. They are your data.",
        ),
    ] = False
    exclude: Exclude = None
    part: PartName = None
    round_to: Annotated[int, _layers(help="Make widths multiples of this.")] = 1
    min_width: Annotated[int, _layers(help="Smallest width of a layer.")] = 1
    same_widths: Annotated[
        bool,
        _layers(
            "--same-widths",
            metavar="",
            help="Give corresponding layers of all blocks the same width.",
        ),
    ] = False
    pretrained: Annotated[
        Path | None,
        typer.Option(
            "--save-pretrained",
            metavar="FOLDER",
            help="Also write a folder that from_pretrained of transformers loads. Turns on "
            "--same-widths.",
            show_default=False,
        ),
    ] = None
    lowrank: Annotated[
        bool,
        _layers(
            "--lowrank",
            metavar="",
            help="Let layers become two thin ones where that loses less; for --flops and --params.",
        ),
    ] = False
    distill: Annotated[
        bool,
        typer.Option(
            "--distill",
            metavar="",
            help="Go on with gradient steps towards the original's outputs; needs no labels.",
        ),
    ] = False
    minutes: Minutes = None
    memory: Annotated[
        float | None,
        _large(
            metavar="GIB",
            help="Memory to use beyond the network and its result. A network that needs more goes "
            "block by block.",
            show_default=False,
        ),
    ] = None
    compute_on: Annotated[
        str | None,
        _large(
            metavar="DEVICE",
            help="Leave the network on --device, and copy its weights to this device block by "
            "block.",
            show_default=False,
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        _large(
            metavar="FOLDER",
            help="Keep finished blocks here; the same command then goes on from the last one.",
            show_default=False,
        ),
    ] = None

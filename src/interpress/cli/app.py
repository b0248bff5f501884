"""`interpress`: the commands, their options and their help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from interpress.cli.budget_options import budget_from, budget_parameters
from interpress.cli.compress_options import CompressOptions, Exclude, Minutes, PartName
from interpress.cli.data_options import DataOptions
from interpress.cli.failing import guarded
from interpress.cli.method_options import MethodOptions
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.cli.records import expand_records

_ABOUT = "Make a trained PyTorch network smaller while it keeps making the same decisions."

app = typer.Typer(
    name="interpress",
    help=_ABOUT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from interpress import __version__

        print(__version__)
        raise typer.Exit


@app.callback(help=_ABOUT)
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Declare the options of `interpress` itself; `guarded` reads `--debug`."""


@app.command(no_args_is_help=True)
@expand_records(fixed={"limit": 4, "batch": 4, "seed": 0})
def inspect(
    model: ModelOptions,
    data: DataOptions | None = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of one example, such as 3,32,32; instead of --data."),
    ] = None,
    exclude: Exclude = None,
    part: PartName = None,
    json: AsJson = False,
) -> None:
    """Show the channel spaces: which can shrink, and which are frozen and why.

    Example: interpress inspect nets.py:VGG16 --shape 3,32,32
    """
    from interpress.cli import commands

    commands.inspect(model, data, shape, exclude or [], part, json)


@app.command(no_args_is_help=True)
@expand_records(keywords=budget_parameters())
def compress(
    model: ModelOptions,
    data: DataOptions,
    method: MethodOptions,
    output: OutputOptions,
    options: CompressOptions,
    json: AsJson = False,
    **budget: float | None,
) -> None:
    """Make a network smaller and write it to a folder, with an HTML report.

    Example: interpress compress nets.py:VGG16 --weights vgg16.safetensors
    --data photos/ --preset cifar10 --flops 0.5 --out half
    """
    from interpress.cli import compressing

    compressing.compress(model, data, method, output, options, budget_from(budget), json)


@app.command(no_args_is_help=True)
@expand_records()
def distill(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a compressed network.", show_default=False)
    ],
    model: ModelOptions,
    data: DataOptions,
    output: OutputOptions,
    out: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Replace an earlier result.")
    ] = False,
    minutes: Minutes = None,
    steps: Annotated[
        int | None, typer.Option(help="At most this many steps.", show_default=False)
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Activations to hold for a gradient.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Keep the state here, so that a run that was ended goes on."),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="More data, prepared like --data, to evaluate on in the report."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Train a compressed network towards the original's outputs, without labels.

    MODEL is the original. The result is never worse on held-out examples than
    the network in FOLDER. Ctrl-C keeps the best weights so far.

    Example: interpress distill half nets.py:VGG16 --weights vgg16.safetensors
    --data photos/ --preset cifar10 --minutes 5 --out half-distilled
    """
    from interpress.cli import distilling

    limits = {"minutes": minutes, "steps": steps, "memory": memory, "checkpoint": checkpoint}
    options = distilling.DistillOptions(out, force, evaluation, limits)
    distilling.distill(folder, model, data, output, options, json)


@app.command(no_args_is_help=True)
@expand_records(defaults={"limit": 0})
def evaluate(
    model: ModelOptions,
    data: DataOptions,
    output: OutputOptions,
    compressed: Annotated[
        Path | None, typer.Option(help="Compare with the result in this folder.")
    ] = None,
    other: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Or compare with this network.")
    ] = None,
    other_weights: Annotated[Path | None, typer.Option(help="Weights of --other.")] = None,
    json: AsJson = False,
) -> None:
    """Measure how often two networks make the same decision.

    Accuracy is shown too if the data have labels: an array or column named
    label, or one folder of images per class.

    Example: interpress evaluate nets.py:VGG16 --weights vgg16.safetensors
    --compressed half --data test.parquet --preset cifar10
    """
    from interpress.cli import commands

    commands.evaluate(model, data, output, compressed, other, other_weights, json)


@app.command(no_args_is_help=True)
@expand_records(fixed={"refit": None})
def curve(
    model: ModelOptions,
    data: DataOptions,
    method: MethodOptions,
    output: OutputOptions,
    points: Annotated[int, typer.Option(help="Number of points.")] = 12,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            metavar="",
            help="Build the network at every point and measure its agreement.",
        ),
    ] = False,
    exclude: Exclude = None,
    part: PartName = None,
    json: AsJson = False,
) -> None:
    """Show the trade-off between size and loss, predicted from one pass over the data.

    Example: interpress curve nets.py:VGG16 --weights vgg16.safetensors
    --data photos/ --preset cifar10
    """
    from interpress.cli import commands

    asked = {"exclude": exclude or [], "part": part}
    commands.curve(model, data, method, output, points, measure, asked, json)


@app.command(no_args_is_help=True)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Folders of results.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Page to write. Default: report.html in the folder, or comparison.html.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Replace an earlier page.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Write the report of a result again, or compare several on one page.

    It needs neither the network nor the data. Of several folders, the page has
    a table and plots, and links to the report of each.

    Example: interpress report half third quarter --out comparison.html
    """
    from interpress.cli import reporting

    reporting.report(folders, out, force, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("interpress-demo"),
    json: AsJson = False,
) -> None:
    """Compress a small network that comes with the package, and write its report.

    Example: interpress demo --out first-try
    """
    from interpress.demo import main

    main(out=out, as_json=json)


def run(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its status."""
    sys.exit(guarded(app, sys.argv[1:] if arguments is None else arguments))

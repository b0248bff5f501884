"""`interpress`: the commands, their options and their help."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from interpress.cli.failing import guarded

app = typer.Typer(
    name="interpress",
    help="Make a trained PyTorch network smaller while it keeps making the same decisions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Preset(str, Enum):
    """How images are prepared."""

    cifar10 = "cifar10"
    imagenet = "imagenet"
    half = "half"
    none = "none"


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A function that builds the network: package.module:function or file.py:function. "
        "Or a Hugging Face model folder.",
        show_default=False,
    ),
]
ModelArg = Annotated[
    list[str] | None,
    typer.Option("--model-arg", metavar="KEY=VALUE", help="Passed to the function; repeatable."),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="Its trained weights: .safetensors, or a .pt file with a state dict."),
]
DataPath = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Unlabelled examples: a folder of images, .npy, .npz, .safetensors, .parquet with "
        "image bytes, or .txt lines.",
        show_default=False,
    ),
]
Size = Annotated[int | None, typer.Option(help="Images: scale and crop to this many pixels.")]
Mean = Annotated[str | None, typer.Option(help="Images: subtracted per channel, as 0.5,0.5,0.5.")]
Std = Annotated[str | None, typer.Option(help="Images: divided by per channel.")]
PresetName = Annotated[
    Preset | None, typer.Option(help="Images: size, mean and std that belong together.")
]
Gray = Annotated[bool, typer.Option("--gray", help="Images: one channel instead of three.")]
Key = Annotated[
    str | None, typer.Option(help="Which array, tensor or column, if there are several.")
]
Tokenizer = Annotated[
    Path | None, typer.Option(help="Text: folder of the tokenizer [the model's folder].")
]
Length = Annotated[int, typer.Option(help="Text: tokens per line, padded or cut.")]
Limit = Annotated[int, typer.Option(help="Use so many examples, drawn at random; 0 for all.")]
Batch = Annotated[int, typer.Option(help="Examples at once.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")]
Seed = Annotated[int, typer.Option(help="Draws examples; same seed, same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Leave layers alone; repeatable.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from interpress import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Make a trained PyTorch network smaller while it keeps making the same decisions."""


@app.command(no_args_is_help=True)
def inspect(
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option("--data", help="Some examples of what it sees, or --shape.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Shape of one example, as 3,32,32, instead of data.")
    ] = None,
    weights: Weights = None,
    model_arg: ModelArg = None,
    exclude: Exclude = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    preset: PresetName = None,
    gray: Gray = False,
    key: Key = None,
    tokenizer: Tokenizer = None,
    length: Length = 128,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Show the channel spaces: what can shrink, what is frozen and why.

    Example: interpress inspect nets.py:VGG16 --shape 3,32,32
    """
    from interpress.cli import commands
    from interpress.cli.inputs import Source

    source = None
    if data is not None:
        source = Source(
            data, size, mean, std, _name(preset), gray, key, tokenizer, length, 4, 4, 0, model
        )
    commands.inspect(model, model_arg, weights, device, source, shape, exclude, json)


@app.command(no_args_is_help=True)
def compress(
    model: ModelName,
    data: DataPath,
    out: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    weights: Weights = None,
    flops: Annotated[float | None, typer.Option(help="Budget: share of FLOPs kept.")] = None,
    params: Annotated[float | None, typer.Option(help="Budget: share of parameters.")] = None,
    latency: Annotated[float | None, typer.Option(help="Budget: share of time.")] = None,
    agreement: Annotated[
        float | None, typer.Option(help="Budget: smallest network that agrees so often.")
    ] = None,
    error: Annotated[float | None, typer.Option(help="Budget: certified error.")] = None,
    width: Annotated[float | None, typer.Option(help="Budget: share of every layer.")] = None,
    method: Annotated[str, typer.Option(help="preserve, iterative-id, constant-id.")] = "preserve",
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Other data, prepared the same way, to judge by in the report."),
    ] = None,
    exclude: Exclude = None,
    round_to: Annotated[int, typer.Option(help="Widths become multiples of this.")] = 1,
    min_width: Annotated[int, typer.Option(help="No layer gets narrower.")] = 1,
    model_arg: ModelArg = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    preset: PresetName = None,
    gray: Gray = False,
    key: Key = None,
    tokenizer: Tokenizer = None,
    length: Length = 128,
    limit: Limit = 1000,
    batch: Batch = 100,
    device: Device = "cpu",
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier result.")] = False,
    json: AsJson = False,
) -> None:
    """Make a network smaller and write it to a folder, with a report to look at.

    Example: interpress compress nets.py:VGG16 --weights vgg16.safetensors
    --data photos/ --preset cifar10 --flops 0.5 --out half
    """
    from interpress.cli import commands
    from interpress.cli.inputs import Source

    def source(path: Path, count: int) -> Source:
        return Source(
            path, size, mean, std, _name(preset), gray, key, tokenizer, length, count, batch, seed,
            model,
        )  # fmt: skip

    budgets = {
        "flops": flops, "params": params, "latency": latency,
        "agreement": agreement, "error": error, "width": width,
    }  # fmt: skip
    options = {
        "method": method, "exclude": exclude or [], "round_to": round_to, "min_width": min_width,
        "seed": seed,
    }  # fmt: skip
    commands.compress(
        model, model_arg, weights, device, source(data, limit),
        None if evaluation is None else source(evaluation, 0), budgets, options, out, force, json,
    )  # fmt: skip


@app.command(no_args_is_help=True)
def evaluate(
    model: ModelName,
    data: DataPath,
    weights: Weights = None,
    compressed: Annotated[
        Path | None, typer.Option(help="Folder that compress wrote, to compare with.")
    ] = None,
    other: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Or another network to compare with.")
    ] = None,
    other_weights: Annotated[Path | None, typer.Option(help="Weights of that one.")] = None,
    model_arg: ModelArg = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    preset: PresetName = None,
    gray: Gray = False,
    key: Key = None,
    tokenizer: Tokenizer = None,
    length: Length = 128,
    limit: Limit = 0,
    batch: Batch = 100,
    device: Device = "cpu",
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Say how often two networks decide the same, and where they do not.

    Labels are used where the data have them: a column or array named label, or one folder
    per class.

    Example: interpress evaluate nets.py:VGG16 --weights vgg16.safetensors
    --compressed half --data test.parquet --preset cifar10
    """
    from interpress.cli import commands
    from interpress.cli.inputs import Source

    source = Source(
        data,
        size,
        mean,
        std,
        _name(preset),
        gray,
        key,
        tokenizer,
        length,
        limit,
        batch,
        seed,
        model,
    )
    commands.evaluate(
        model, model_arg, weights, device, source, compressed, other, other_weights, json
    )


@app.command(no_args_is_help=True)
def curve(
    model: ModelName,
    data: DataPath,
    weights: Weights = None,
    points: Annotated[int, typer.Option(help="How many points.")] = 12,
    measure: Annotated[
        bool, typer.Option("--measure", help="Build every network and measure agreement.")
    ] = False,
    method: Annotated[str, typer.Option(help="preserve, iterative-id, constant-id.")] = "preserve",
    exclude: Exclude = None,
    model_arg: ModelArg = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    preset: PresetName = None,
    gray: Gray = False,
    key: Key = None,
    tokenizer: Tokenizer = None,
    length: Length = 128,
    limit: Limit = 1000,
    batch: Batch = 100,
    device: Device = "cpu",
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Show the trade-off over budgets, predicted from one pass over the data.

    Example: interpress curve nets.py:VGG16 --weights vgg16.safetensors
    --data photos/ --preset cifar10
    """
    from interpress.cli import commands
    from interpress.cli.inputs import Source

    source = Source(
        data,
        size,
        mean,
        std,
        _name(preset),
        gray,
        key,
        tokenizer,
        length,
        limit,
        batch,
        seed,
        model,
    )
    commands.curve(
        model,
        model_arg,
        weights,
        device,
        source,
        points,
        measure,
        method,
        exclude or [],
        seed,
        json,
    )


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


def _name(preset: Preset | None) -> str | None:
    return None if preset is None else preset.value


def run(arguments: list[str] | None = None) -> None:
    """The entry point: every failure is one line and an exit code."""
    sys.exit(guarded(app, sys.argv[1:] if arguments is None else arguments))

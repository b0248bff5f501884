"""`DataOptions`: the options that describe calibration or evaluation data, and their checks."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from interpress.errors import ArgumentError
from interpress.registry import Registry

DEFAULT_LIMIT = 1000
"""Examples that are used where `--limit` is not given."""
_LARGEST_SIZE = 8192  # pixels; a larger --size is a typing error and would fill the memory

_suffixes = ", ".join(
    f".{name}" for name in Registry[object]("data file", "interpress.cli.data_files.suffixes")
)
_data = functools.partial(typer.Option, rich_help_panel="Data")
_image = functools.partial(typer.Option, rich_help_panel="Data: images")
_text = functools.partial(typer.Option, rich_help_panel="Data: text")


@dataclass(frozen=True)
class Preset:
    """How a family of image classifiers expects its images."""

    size: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]


PRESETS = {
    "cifar10": Preset(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "imagenet": Preset(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": Preset(None, (0.5,), (0.5,)),
    "none": Preset(None, (0.0,), (1.0,)),
}


INTERPOLATIONS = ("bicubic", "bilinear", "nearest", "lanczos")
"""The ways to resize images; the first is the default."""


@dataclass(frozen=True)
class DataOptions:
    """Where the examples are, how to prepare them, and how many to use."""

    if_missing: ClassVar[str] = "the examples are missing; give --data, or --text for running text"

    path: Annotated[
        Path,
        _data(
            "--data",
            help=f"Examples, without labels: a folder of images, or a file: {_suffixes}.",
            show_default=False,
        ),
    ]
    text: Annotated[
        Path | None,
        _text(
            metavar="FILE",
            help="Instead of --data: running text for a language model, cut into examples of "
            "--length tokens.",
            show_default=False,
        ),
    ] = None
    size: Annotated[
        int | None, _image(help="Resize the shorter side to this many pixels and crop the centre.")
    ] = None
    mean: Annotated[
        str | None,
        _image(help="Subtract this from pixels in [0, 1]; per channel, such as 0.5,0.5,0.5."),
    ] = None
    std: Annotated[str | None, _image(help="Then divide by this; as for --mean.")] = None
    preset: Annotated[
        str | None,
        _image(metavar="NAME", help=f"Size, mean and std together: {', '.join(PRESETS)}."),
    ] = None
    crop: Annotated[
        float | None,
        _image(
            help="Fraction of the resized image that the crop keeps, such as 0.875. Default: 1.",
            show_default=False,
        ),
    ] = None
    interpolation: Annotated[
        str | None,
        _image(
            metavar="NAME",
            help=f"How to resize: {', '.join(INTERPOLATIONS)}. Default: {INTERPOLATIONS[0]}.",
            show_default=False,
        ),
    ] = None
    gray: Annotated[
        bool, _image("--gray", metavar="", help="Convert to one channel instead of three.")
    ] = False
    key: Annotated[
        str | None,
        _data(metavar="NAME", help="The array or column to read, if the file has several."),
    ] = None
    tokenizer: Annotated[
        Path | None, _text(help="Folder of the tokenizer. Default: the folder of the model.")
    ] = None
    length: Annotated[
        int | None,
        _text(
            help="Tokens per example. Lines of --data are cut or padded to it (default 128); "
            "--text is divided into such pieces (default 512).",
            show_default=False,
        ),
    ] = None
    limit: Annotated[int, _data(help="Number of examples, drawn at random; 0 for all.")] = (
        DEFAULT_LIMIT
    )
    batch: Annotated[int, _data(help="Examples per batch.")] = 100
    seed: Annotated[int, _data(help="Random seed. The same seed gives the same result.")] = 0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ArgumentError(f"--batch {self.batch}; give at least 1")
        if self.limit < 0:
            raise ArgumentError(f"--limit {self.limit}; give a number of examples, or 0 for all")
        if self.length is not None and self.length < 1:
            raise ArgumentError(f"--length {self.length}; give at least 1 token per example")
        if not 0 <= self.seed < 2**63:
            raise ArgumentError(f"--seed {self.seed}; give a whole number from 0 to 2**63 - 1")
        self._check_images()

    def _check_images(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise ArgumentError(
                f"--preset {self.preset} is not known; choose one of {', '.join(PRESETS)}"
            )
        if self.size is not None and not 1 <= self.size <= _LARGEST_SIZE:
            raise ArgumentError(f"--size {self.size}; give pixels, from 1 to {_LARGEST_SIZE}")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ArgumentError(f"--crop {self.crop}; give a fraction above 0 and at most 1")
        if self.interpolation not in (None, *INTERPOLATIONS):
            raise ArgumentError(
                f"--interpolation {self.interpolation} is not known; choose one of "
                f"{', '.join(INTERPOLATIONS)}"
            )
        if self.preset is None and (self.mean is None) != (self.std is None):
            raise ArgumentError("--mean and --std belong together; give both, or a --preset")
        _, std = self.normalization()
        if min(std) <= 0:
            raise ArgumentError(f"--std {self.std}; every value must be above 0")

    @classmethod
    def fill_in(cls, arguments: dict[str, Any]) -> None:
        """Let `--text` stand in for `--data`; raise if both are given."""
        if arguments["text"] is not None:
            if arguments["path"] is not None:
                raise ArgumentError("--data and --text are both given; give one of them")
            arguments["path"] = arguments["text"]

    def image_size(self) -> int | None:
        """Return the height and width of a prepared image; None keeps those of the file."""
        return PRESETS[self.preset or "none"].size if self.size is None else self.size

    def resized(self) -> int | None:
        """Return the shorter side of an image before the crop; None keeps that of the file."""
        size = self.image_size()
        return None if size is None else math.floor(size / (self.crop or 1.0))

    def preparation(self) -> str:
        """Return how images are prepared, in words."""
        size, (mean, std) = self.image_size(), self.normalization()
        words = []
        if size is not None:
            how = self.interpolation or INTERPOLATIONS[0]
            words += [f"shorter side resized to {self.resized()} ({how})", f"centre {size}x{size}"]
        numbers = [" ".join(f"{value:.6g}" for value in values) for values in (mean, std)]
        return ", ".join([*words, f"mean {numbers[0]}, std {numbers[1]}"])

    def normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and the standard deviation per channel, for pixels in [0, 1]."""
        preset = PRESETS[self.preset or "none"]
        return (
            self._per_channel("--mean", self.mean, preset.mean),
            self._per_channel("--std", self.std, preset.std),
        )

    def _per_channel(
        self, flag: str, text: str | None, preset: tuple[float, ...]
    ) -> tuple[float, ...]:
        channels, wanted = (1, "1 number with --gray") if self.gray else (3, "1 or 3 numbers")
        values = preset if text is None else _numbers(flag, text)
        if len(values) == 1:
            return values * channels
        if len(values) != channels:
            source = f"--preset {self.preset}" if text is None else f"{flag} {text!r}"
            raise ArgumentError(f"{source} has {len(values)} values; {flag} takes {wanted}")
        return values

    def check_no_image_options(self) -> None:
        """Refuse options that prepare images, for a file that holds model inputs."""
        options = {
            "--size": self.size, "--mean": self.mean, "--std": self.std,
            "--preset": self.preset, "--crop": self.crop, "--interpolation": self.interpolation,
            "--gray": self.gray or None,
        }  # fmt: skip
        for flag, value in options.items():
            if value is not None:
                raise ArgumentError(
                    f"{flag} prepares images, but {self.path} is not a file of images; leave it out"
                )


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentError(f"{flag} {text!r}; give numbers, such as 0.5,0.5,0.5") from error
    if not all(math.isfinite(value) for value in values):
        raise ArgumentError(f"{flag} {text!r}; give finite numbers")
    return values

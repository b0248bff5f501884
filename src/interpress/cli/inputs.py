"""Data from the command line: batches that can be read again and again, labels where there are any.

A kind of file is one small class with `count`, `labels` and `inputs(indices)`; add one to `_open`.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from interpress.errors import ArgumentError, DataError, StorageError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
LABELS = ("label", "labels", "y", "target", "targets")
PRESETS: dict[str, tuple[int | None, str, str]] = {
    "cifar10": (32, "0.4914,0.4822,0.4465", "0.2470,0.2435,0.2616"),
    "imagenet": (224, "0.485,0.456,0.406", "0.229,0.224,0.225"),
    "half": (None, "0.5", "0.5"),
    "none": (None, "0", "1"),
}
_CACHED = 2**30  # bytes of prepared examples that are kept rather than prepared again


@dataclass(frozen=True)
class Source:
    """What the options say about the data."""

    path: Path
    size: int | None
    mean: str | None
    std: str | None
    preset: str | None
    gray: bool
    key: str | None
    tokenizer: Path | None
    length: int
    limit: int
    batch: int
    seed: int
    model: str

    def open(self) -> Batches:
        """The examples, drawn and prepared."""
        if self.batch < 1:
            raise ArgumentError(f"--batch {self.batch}; give at least 1")
        if self.limit < 0:
            raise ArgumentError(f"--limit {self.limit}; give a number of examples, or 0 for all")
        if not self.path.exists():
            raise StorageError(f"{self.path} does not exist; give the path of your data")
        kind = _open(self)
        if kind.count == 0:
            raise DataError(f"{self.path} holds no examples; {kind.wanted}")
        return Batches(kind, self.limit, self.batch, self.seed)


class Kind(Protocol):
    """One kind of data file."""

    wanted: str
    """What should have been there, where nothing is."""
    labels: Tensor | None

    @property
    def count(self) -> int:
        """How many examples there are."""

    def inputs(self, indices: Sequence[int]) -> Any:
        """Some examples as the model takes them."""


class Batches:
    """Examples of a kind in batches, with labels where known; re-readable."""

    def __init__(self, kind: Kind, limit: int, batch: int, seed: int) -> None:
        chosen = torch.arange(kind.count)
        if 0 < limit < kind.count:
            generator = torch.Generator().manual_seed(seed)
            chosen = torch.randperm(kind.count, generator=generator)[:limit].sort().values
        self._kind = kind
        self._parts = chosen.split(batch)
        self._kept: dict[int, Any] = {}
        self._room = _CACHED
        self.count = len(chosen)

    def labels(self) -> Tensor | None:
        """One label per example, in order."""
        own = self._kind.labels
        return None if own is None else own[torch.cat(list(self._parts))]

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Any]:
        for number, part in enumerate(self._parts):
            yield self._batch(number, part)

    def _batch(self, number: int, part: Tensor) -> Any:
        if number in self._kept:
            return self._kept[number]
        inputs = self._kind.inputs(part.tolist())
        tensors = inputs.values() if isinstance(inputs, dict) else [inputs]
        weight = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if weight <= self._room:
            self._room -= weight
            self._kept[number] = inputs
        return inputs


def _open(source: Source) -> Kind:
    path, suffix = source.path, source.path.suffix.lower()
    if path.is_dir():
        return ImageFolder(path, Preparing.of(source))
    if suffix == ".parquet":
        return Parquet(path, source.key, Preparing.of(source))
    options = {
        "--size": source.size, "--mean": source.mean, "--std": source.std,
        "--preset": source.preset, "--gray": source.gray or None,
    }  # fmt: skip
    for flag, value in options.items():
        if value is not None:
            raise ArgumentError(
                f"{flag} prepares images, but {path} holds what the model is given; leave it out"
            )
    if suffix in (".npy", ".npz"):
        return _arrays(path, _numpy(path), source.key)
    if suffix == ".safetensors":
        try:
            return _arrays(path, load_file(path), source.key)
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{path} cannot be read ({error}); save it again") from error
    if suffix in (".txt", ".text"):
        return Lines(path, source.tokenizer or Path(source.model), source.length)
    if suffix in IMAGES:
        raise DataError(f"{path} is one image; give a folder of them")
    raise DataError(
        f"{path}: data are a folder of images, or a .npy, .npz, .safetensors, .parquet or .txt file"
    )


class Arrays:
    """One tensor, examples first."""

    wanted = "its first dim counts examples"

    def __init__(self, values: Tensor, labels: Tensor | None) -> None:
        self.values, self.labels = values, labels

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.values)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Some of them."""
        return self.values[torch.as_tensor(indices)]


def _numpy(path: Path) -> dict[str, Tensor]:
    try:
        with open(path, "rb") as file:
            stored = np.load(file, allow_pickle=False)
            arrays = {"array": stored} if isinstance(stored, np.ndarray) else dict(stored)
        return {name: torch.from_numpy(np.ascontiguousarray(own)) for name, own in arrays.items()}
    except (ValueError, OSError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{path} is no file of plain arrays ({type(error).__name__}: {error}); save arrays of "
            "numbers with numpy.save or numpy.savez"
        ) from error


def _arrays(path: Path, found: dict[str, Tensor], key: str | None) -> Arrays:
    names = [name for name in found if name not in LABELS]
    if key is None and len(names) > 1:
        raise DataError(f"{path} holds {', '.join(sorted(names))}; say which with --key")
    if key is not None and key not in found:
        raise DataError(f"{path} has no {key!r}; it holds {', '.join(sorted(found))}")
    if key is None and not names:
        raise DataError(f"{path} holds no inputs; it has {', '.join(sorted(found)) or 'nothing'}")
    values = found[key or names[0]]
    if values.ndim < 2:
        raise DataError(
            f"{path} holds an array of shape {tuple(values.shape)}; give examples along the first "
            "dim and features along others"
        )
    if values.is_complex():
        raise DataError(f"{path} holds complex numbers; give real ones")
    if values.is_floating_point() and not bool(values.isfinite().all()):
        raise DataError(f"{path} holds NaN or Inf; drop those examples")
    if values.dtype == torch.uint8:
        raise DataError(
            f"{path} holds bytes; save the floating-point numbers that the model is given, or use "
            "a folder of images"
        )
    label = next((found[name] for name in LABELS if name in found), None)
    if label is not None and (label.ndim != 1 or len(label) != len(values)):
        raise DataError(f"{path}: labels of shape {tuple(label.shape)} for {len(values)} examples")
    if label is not None and (label.is_floating_point() or bool((label < 0).any())):
        raise DataError(f"{path}: labels must be whole numbers from 0; drop them, or mend them")
    return Arrays(values, None if label is None else label.long())


@dataclass(frozen=True)
class Preparing:
    """From a picture to a tensor."""

    size: int | None
    mean: Tensor
    std: Tensor
    gray: bool

    @classmethod
    def of(cls, source: Source) -> Preparing:
        """What the options ask for."""
        size, mean, std = PRESETS[source.preset or "none"]
        if source.preset is None and (source.mean is None) != (source.std is None):
            raise ArgumentError("--mean and --std belong together; give both, or a --preset")
        size = source.size if source.size is not None else size
        if size is not None and not 1 <= size <= 8192:
            raise ArgumentError(f"--size {size}; give pixels, from 1 to 8192")
        channels = 1 if source.gray else 3
        std_values = _numbers("--std", source.std or std, channels)
        if bool((std_values <= 0).any()):
            raise ArgumentError(f"--std {source.std}; every value must be above 0")
        return cls(size, _numbers("--mean", source.mean or mean, channels), std_values, source.gray)

    def __call__(self, data: bytes | Path, name: str) -> Tensor:
        """One picture (channels, height, width)."""
        image_module = _pillow()
        try:
            opened = image_module.open(io.BytesIO(data) if isinstance(data, bytes) else data)
            with opened as image:
                image = image.convert("L" if self.gray else "RGB")
                image = self._scaled(image)
                pixels = np.asarray(image, dtype=np.float32) / 255
        except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
            raise DataError(
                f"{name} is no readable image ({error}); remove or repair it"
            ) from error
        tensor = torch.from_numpy(pixels)
        tensor = tensor[None] if self.gray else tensor.permute(2, 0, 1)
        return (tensor - self.mean[:, None, None]) / self.std[:, None, None]

    def _scaled(self, image: Any) -> Any:
        """The shorter side to `size`, then the middle."""
        if self.size is None or image.size == (self.size, self.size):
            return image
        scale = self.size / min(image.size)
        wide, high = (max(self.size, round(side * scale)) for side in image.size)
        image = image.resize((wide, high), _pillow().Resampling.BICUBIC)
        left, top = (wide - self.size) // 2, (high - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))

    def stacked(self, pictures: list[Tensor], names: list[str]) -> Tensor:
        """A batch, if all are of one size."""
        for picture, name in zip(pictures, names, strict=True):
            if picture.shape != pictures[0].shape:
                a, b = ("x".join(map(str, p.shape[1:])) for p in (pictures[0], picture))
                raise DataError(
                    f"{names[0]} has {a} pixels and {name} {b}; give --size (or a --preset) to "
                    "bring all to one"
                )
        return torch.stack(pictures)


def _numbers(flag: str, text: str, channels: int) -> Tensor:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"{flag} {text!r}; give numbers, as in 0.5,0.5,0.5") from error
    if not all(math.isfinite(value) for value in values) or len(values) not in (1, channels):
        raise ArgumentError(f"{flag} {text!r}; give 1 or {channels} finite numbers")
    return torch.tensor(values if len(values) == channels else values * channels)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ArgumentError("images need Pillow: pip install 'interpress[images]'") from error
    return Image


class ImageFolder:
    """Pictures in a folder; where they lie in subfolders, those are the classes."""

    wanted = "give a folder of images: " + ", ".join(IMAGES)

    def __init__(self, folder: Path, preparing: Preparing) -> None:
        found = [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in IMAGES]
        self.paths = [path for path in found if path.is_file()]
        self.preparing = preparing
        tops = [path.relative_to(folder).parts for path in self.paths]
        self.labels: Tensor | None = None
        if self.paths and all(len(parts) > 1 for parts in tops):
            classes = sorted({parts[0] for parts in tops})
            self.labels = torch.tensor([classes.index(parts[0]) for parts in tops])

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.paths)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Some pictures."""
        paths = [self.paths[index] for index in indices]
        names = [str(path) for path in paths]
        pictures = [self.preparing(p, n) for p, n in zip(paths, names, strict=True)]
        return self.preparing.stacked(pictures, names)


class Parquet:
    """A column of encoded pictures, as data set hubs store them."""

    wanted = "give a file with rows"

    def __init__(self, path: Path, key: str | None, preparing: Preparing) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise ArgumentError(
                "Parquet needs pyarrow: pip install 'interpress[images]'"
            ) from error
        try:
            table = parquet.read_table(path)
        except Exception as error:
            raise StorageError(f"{path} is no readable Parquet file ({error})") from error
        column = key or next((f.name for f in table.schema if _holds_bytes(f.type)), None)
        if column is None or column not in table.column_names:
            raise DataError(
                f"{path} has no column of image bytes{f' {key!r}' if key else ''}; its columns are "
                f"{', '.join(table.column_names)}"
            )
        if not _holds_bytes(table.schema.field(column).type):
            raise DataError(
                f"{path}: column {column!r} holds no image bytes; name another by --key"
            )
        self.path, self.preparing, self.column = path, preparing, table.column(column)
        label = next((name for name in LABELS if name in table.column_names), None)
        self.labels = None
        if label is not None:
            self.labels = torch.tensor(table.column(label).to_pylist()).long()

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.column)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Some pictures."""
        names = [f"row {index} of {self.path}" for index in indices]
        pictures = []
        for index, name in zip(indices, names, strict=True):
            cell = self.column[index].as_py()
            data = cell.get("bytes") if isinstance(cell, dict) else cell
            if not data:
                raise DataError(f"{name} holds no bytes; remove the row")
            pictures.append(self.preparing(data, name))
        return self.preparing.stacked(pictures, names)


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


class Lines:
    """Lines of text, for a tokenizer."""

    wanted = "give one example per line"
    labels: Tensor | None = None

    def __init__(self, path: Path, tokenizer: Path, length: int) -> None:
        if length < 1:
            raise ArgumentError(f"--length {length}; give tokens per line, at least 1")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text ({error}); convert it") from error
        self.lines = [line for line in text.splitlines() if line.strip()]
        self.length = length
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise ArgumentError("text needs transformers: pip install 'interpress[hf]'") from error
        if not tokenizer.is_dir():
            raise ArgumentError(f"{path} is text; give the folder of a tokenizer with --tokenizer")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise StorageError(f"{tokenizer} holds no tokenizer ({reason})") from error

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.lines)

    def inputs(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Some lines as token numbers."""
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        made = self.tokenizer(
            [self.lines[index] for index in indices],
            padding="max_length", truncation=True, max_length=self.length, return_tensors="pt",
        )  # fmt: skip
        return dict(made)

"""Files in and out: safetensors with a kind and a version, written beside and moved into place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from interpress.errors import StorageError

FORMAT_VERSION = 1


def save_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    fields: Mapping[str, str],
) -> None:
    """Write one file; an interrupt or a full disk leaves whatever was there before."""
    target = Path(path)
    metadata = {"interpress": kind, "version": str(FORMAT_VERSION), **fields}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; choose a folder that exists and is writable"
        ) from error
    os.close(handle)
    try:
        save_file(plain, beside, metadata)
        os.replace(beside, target)
    except (OSError, SafetensorError) as error:
        raise StorageError(f"cannot write {target}: {error}; nothing was changed") from error
    finally:
        Path(beside).unlink(missing_ok=True)


def load_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read back what :func:`save_tensors` wrote, or say what is wrong with the file."""
    source = Path(path)
    if not source.is_file():
        raise StorageError(f"{source} is not a file; give the path that was saved to")
    try:
        with safe_open(source, framework="pt") as file:
            fields = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"{source} is not a readable safetensors file ({error}); it may be cut short: "
            "save it again"
        ) from error
    found, version = fields.pop("interpress", "nothing of ours"), fields.pop("version", "0")
    if found != kind:
        raise StorageError(f"{source} holds {found!r}, not {kind!r}; give the file of a {kind}")
    if int(version) > FORMAT_VERSION:
        raise StorageError(
            f"{source} has format version {version}, this interpress reads up to "
            f"{FORMAT_VERSION}; upgrade interpress"
        )
    return tensors, fields

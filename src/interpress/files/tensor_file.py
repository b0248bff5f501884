"""Read and write single files: written beside their target and then moved into place."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interpress.errors import StorageError

FORMAT_VERSION = 1


def source_path(path: str | os.PathLike[str]) -> Path:
    """Return a path to read; raise if no file system can have it."""
    try:
        source = Path(path)
        os.lstat(source)
    except (FileNotFoundError, NotADirectoryError):
        return source
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(
            f"{str(path)[:80]!r} is not a usable path ({reason}); choose another"
        ) from error
    return source


def target_path(path: str | os.PathLike[str]) -> Path:
    """Return the path to write: resolve symlinks, so that the link's target is replaced."""
    return Path(os.path.realpath(source_path(path)))


def save_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    fields: Mapping[str, str],
) -> None:
    """Write one safetensors file; after an interrupt or on a full disk the old file remains."""
    target = target_path(path)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    stamp = {"interpress": kind, "version": str(FORMAT_VERSION)}
    metadata = {**stamp, **fields, "sha256": _digest(plain, {**stamp, **fields})}
    _write(target, save(plain, metadata))


def save_text(path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
    """Write one text file."""
    target = target_path(path)
    if target.exists() and not overwrite:
        raise StorageError(f"{target} exists; pass overwrite=True to replace it")
    _write(target, text.encode())


def _write(target: Path, data: bytes) -> None:
    """Write a temporary file beside the target, then move it into place."""
    temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        if target.is_file():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; nothing was changed. Choose a folder that "
            "exists, is writable and has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def load_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `save_tensors` wrote; raise if the file is damaged or of another kind."""
    source = source_path(path)
    if not source.is_file():
        raise StorageError(f"{source} is not a file; give the path that was saved to")
    try:
        with safe_open(source, framework="pt") as file:
            fields = dict(file.metadata() or {})
            # copied, because misaligned memory of the file changes the last bits of products
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"{source} is not a readable safetensors file ({error}); it may be truncated: save it "
            "again"
        ) from error
    digest = fields.pop("sha256", "")
    expected = _digest(tensors, fields)
    stored, version = fields.pop("interpress", "no interpress data"), fields.pop("version", "0")
    if stored != kind:
        raise StorageError(f"{source} holds {stored!r}, not {kind!r}; give the file of a {kind}")
    if not version.isdecimal() or int(version) > FORMAT_VERSION:
        raise StorageError(
            f"{source} has format version {version}, this interpress reads up to "
            f"{FORMAT_VERSION}; upgrade interpress"
        )
    if digest != expected:
        raise StorageError(f"{source} was changed after it was written; restore or save it again")
    return tensors, fields


def _digest(tensors: Mapping[str, Tensor], fields: Mapping[str, str]) -> str:
    """Return a hash of every field and every number."""
    digest = hashlib.sha256(json.dumps(sorted(fields.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().reshape(-1).clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().data

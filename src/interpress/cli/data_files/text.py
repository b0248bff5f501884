"""Read text files, and find the tokenizer for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interpress.cli.failing import warn
from interpress.errors import ArgumentError, DataError, StorageError

IF_MISFIT = "choose how many tokens an example has with --length"
"""What to tell the user if the model does not take the tokens."""
_LOOKED_AT = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt", "vocab.json")
_UNKNOWN = 0.5  # of the tokens: with more, the model sees hardly anything of the text


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}); convert it to UTF-8") from error


def load_tokenizer(path: Path, folder: Path | None) -> Any:
    """Return the tokenizer in a folder, or of a model on this disk; `path` is the text for it."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ArgumentError("text needs transformers: pip install 'interpress[hf]'") from error
    is_function = folder is not None and ":" in str(folder) and not folder.is_dir()
    if folder is None or is_function:
        raise ArgumentError(f"{path} is text; give the folder of a tokenizer with --tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise StorageError(
            f"{folder} does not hold a tokenizer ({reason}); give another with --tokenizer"
        ) from error
    if folder.is_dir() and not _has_files(tokenizer, folder):
        raise StorageError(
            f"{folder} holds no tokenizer: none of {', '.join(_LOOKED_AT)} is there; save the "
            "tokenizer into it (tokenizer.save_pretrained), or give its folder with --tokenizer"
        )
    return tokenizer


def _has_files(tokenizer: Any, folder: Path) -> bool:
    """Return whether a folder has files of the vocabulary.

    Without them transformers returns a tokenizer whose vocabulary has a few special tokens only.
    Tokenizers of bytes or characters have no such files.
    """
    names = set(getattr(tokenizer, "vocab_files_names", {}).values())
    if not names:
        return True
    files = [path.name for path in folder.iterdir()]
    return any(name in names or name.startswith(_LOOKED_AT) for name in files)


def warn_if_unknown(tokenizer: Any, tokens: Mapping[str, Tensor], path: Path) -> None:
    """Warn if most of the tokens of a text are the one that stands for unknown words."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return
    ids = tokens["input_ids"]
    mask = tokens.get("attention_mask")
    ids = ids.reshape(-1) if mask is None else ids[mask.bool()]
    others = [number for number in tokenizer.all_special_ids if number != unknown]
    ids = ids[~torch.isin(ids, torch.tensor(others, dtype=ids.dtype))]
    share = float((ids == unknown).double().mean()) if len(ids) else 0.0
    if share > _UNKNOWN:
        warn(
            f"{share:.0%} of the tokens of {path} are the unknown token {tokenizer.unk_token}, so "
            "the model sees hardly anything of the text; check that the tokenizer is the model's "
            "own, or give another with --tokenizer"
        )


def text_record(tokenizer: Any, length: int) -> dict[str, Any]:
    """Return how texts become tokens; the hash of the vocabulary tells tokenizers apart."""
    vocabulary = json.dumps(tokenizer.get_vocab(), sort_keys=True)
    return {
        "inputs": "text",
        "tokenizer": Path(str(tokenizer.name_or_path)).name,
        "vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
        "length": length,
    }

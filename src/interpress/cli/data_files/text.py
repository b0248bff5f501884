"""Read text files, and find the tokenizer for them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from interpress.errors import ArgumentError, DataError, StorageError


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
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise StorageError(
            f"{folder} does not hold a tokenizer ({reason}); give another with --tokenizer"
        ) from error


def text_record(tokenizer: Any, length: int) -> dict[str, Any]:
    """Return how texts become tokens; the hash of the vocabulary tells tokenizers apart."""
    vocabulary = json.dumps(tokenizer.get_vocab(), sort_keys=True)
    return {
        "inputs": "text",
        "tokenizer": Path(str(tokenizer.name_or_path)).name,
        "vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
        "length": length,
    }

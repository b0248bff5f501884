"""Write a smaller network as a folder that `from_pretrained` of transformers reads."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch

from interpress.errors import ArgumentError, StorageError
from interpress.files.folder import replaced_folder
from interpress.files.tensor_file import target_path
from interpress.pipeline.outcome import Outcome
from interpress.pretrained.config_edits import shapes_from, shapes_of
from interpress.pretrained.describe import config_values


def save_pretrained(
    outcome: Outcome, folder: str | os.PathLike[str], tokenizer: Any, overwrite: bool
) -> None:
    """Write config, weights, generation config and tokenizer; raise if no config fits."""
    groups = outcome.study.config_groups
    model: Any = outcome.model
    if outcome.part is not None:
        raise ArgumentError(
            f"only the part {outcome.part.name!r} is smaller, which no config can say; use "
            "result.save and interpress.load"
        )
    if groups is None:
        raise ArgumentError(
            f"{type(model).__name__} is not a model of transformers; use result.save and "
            "interpress.load"
        )
    if outcome.ranks:
        raise ArgumentError(
            f"{len(outcome.ranks)} layers of this network are two thin ones, which no config can "
            "say; use result.save and interpress.load, or compress with lowrank=False"
        )
    config_values(outcome.spaces, groups, outcome.widths)  # raises, and says why
    if shapes_from(model, model.config) != shapes_of(model):
        raise ArgumentError(
            f"{type(model.config).__name__} does not describe this network; use result.save and "
            "interpress.load"
        )
    target = _checked(target_path(folder), overwrite)
    with replaced_folder(target) as temporary:
        _plain(model).save_pretrained(temporary)
        tokenizer = tokenizer_of(outcome.original) if tokenizer is None else tokenizer
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary)


def _plain(model: Any) -> Any:
    """Return the same network without the marks of the format that its weights were read from.

    A model that was read from a GGUF file has ordinary weights, but transformers does not write it.
    """
    if getattr(model, "hf_quantizer", None) is None:
        return model
    config = copy.deepcopy(model.config)
    vars(config).pop("quantization_config", None)
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    if getattr(model, "generation_config", None) is not None:
        plain.generation_config = model.generation_config
    return plain


def _checked(target: Path, overwrite: bool) -> Path:
    if target.exists() and not target.is_dir():
        raise StorageError(f"{target} is a file; give a folder")
    if target.is_dir() and any(target.iterdir()):
        if not (target / "config.json").is_file():
            raise StorageError(f"{target} holds other files; choose an empty folder or a new path")
        if not overwrite:
            raise StorageError(f"{target} exists; pass overwrite=True to replace it")
    return target


def tokenizer_of(model: Any) -> Any | None:
    """Return the tokenizer, or the image processor, of the folder or name a model came from."""
    folder = getattr(model, "name_or_path", "")
    if not folder:
        return None
    import transformers

    for kind in ("AutoTokenizer", "AutoImageProcessor", "AutoFeatureExtractor"):
        try:
            return getattr(transformers, kind).from_pretrained(folder, local_files_only=True)
        except Exception:  # the folder has none of this kind
            continue
    return None

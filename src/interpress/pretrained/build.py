"""Build a model of transformers from its config."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from interpress.errors import ArgumentError, StorageError


def built_from(original: Any) -> nn.Module:
    """Return a new model from a config, or from a folder that has one; it is not trained."""
    if not isinstance(original, str | os.PathLike) and not hasattr(original, "to_dict"):
        raise ArgumentError(
            f"the original is a {type(original).__name__}; give a torch.nn.Module, or of a model "
            "of transformers its config or its folder"
        )
    import transformers

    config: Any = original
    if isinstance(original, str | os.PathLike):
        try:
            config = transformers.AutoConfig.from_pretrained(original, local_files_only=True)
        except Exception as error:  # transformers raises many types
            line = next(iter(str(error).splitlines()), type(error).__name__)
            raise StorageError(
                f"{original} has no config that transformers reads ({line}); give the folder of "
                "the original model"
            ) from error
    names = getattr(config, "architectures", None) or []
    kind = getattr(transformers, names[0], None) if names else None
    if kind is None:
        raise ArgumentError(
            f"{type(config).__name__} does not say which class the model is of (architectures is "
            f"{names}); build the model yourself and pass it"
        )
    model: nn.Module = kind(config)
    return model.eval()

"""`timm:NAME`: a model of timm by its name, its weights on this disk, and how it takes images.

Nothing is downloaded: weights come from `--weights` or from the cache that timm keeps.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from interpress.cli.data_options import DataOptions
from interpress.cli.failing import note, warn
from interpress.cli.model_options import ModelOptions
from interpress.errors import ArgumentError, StorageError
from interpress.files.tensor_file import save_text
from interpress.result import Result
from interpress.storage.result_folder import PRUNED, WEIGHTS
from interpress.storage.timm_folder import pruned_text

PREFIX = "timm:"
_LISTED = 6  # names of similar models that an error lists


def timm_model(options: ModelOptions, *, needs_weights: bool) -> nn.Module:
    """Return the model that the options name; `--weights` are not set yet.

    Without `--weights` it has the weights in timm's cache. `needs_weights` says whether to raise
    if there are none.
    """
    timm, name, keywords = _timm(options.name), _checked(options.name), options.keywords()
    for reserved in ("pretrained", "checkpoint_path"):
        if reserved in keywords:
            raise ArgumentError(
                f"--model-arg {reserved}: weights are given by --weights, or found in timm's "
                "cache; leave it out"
            )
    model: nn.Module = _built(timm, name, keywords)
    if options.weights is not None:
        return model
    card: Mapping[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    path = _cached_weights(card)
    if path is not None:
        overlay = {"file": str(path), "source": ""}
        model = _built(
            timm, name, {**keywords, "pretrained": True, "pretrained_cfg_overlay": overlay}
        )
        _warn_of_new_classes(options.name, keywords, card)
    elif needs_weights:
        has_some = any(card.get(source) for source in ("url", "hf_hub_id", "file"))
        remedy = "give --weights FILE"
        if has_some:
            call = f"timm.create_model({name!r}, pretrained=True)"
            remedy += f', or let timm download them once: python -c "import timm; {call}"'
        raise StorageError(f"the weights of {options.name} are not on this disk; {remedy}")
    return model


def prepared_like_timm(data: DataOptions, name: str) -> DataOptions:
    """Return the options with the preparation of images that timm gives for a model.

    Options of the user are kept. What is used is printed.
    """
    if data.preset is not None:
        return data
    card = _timm(name).get_pretrained_cfg(_checked(name))
    if card is None:
        warn(f"timm does not say how {name} takes images; give --size, --mean and --std")
        return data
    changes: dict[str, Any] = {}
    if data.size is None:
        height, width = card.input_size[-2:]
        if height != width:
            raise ArgumentError(
                f"{name} takes images of {height}x{width} pixels, but images are prepared as "
                "squares; give --size, or prepared images in a .npy file"
            )
        changes |= {"size": height}
        if data.crop is None:
            changes |= {"crop": float(card.crop_pct)}
        if card.crop_mode != "center":
            warn(f"timm prepares images for {name} with {card.crop_mode!r}; the centre is cropped")
    if data.mean is None:
        if data.gray and len(card.mean) > 1:
            raise ArgumentError(
                f"timm describes {name} for images in colour; give --mean and --std with --gray"
            )
        changes |= {"mean": _listed(card.mean), "std": _listed(card.std)}
    if data.interpolation is None and card.interpolation in ("nearest", "bilinear", "lanczos"):
        changes |= {"interpolation": card.interpolation}
    prepared = replace(data, **changes)
    note(f"images of {data.path}: {prepared.preparation()}; from timm's description of {name}")
    return prepared


def _timm(name: str) -> Any:
    try:
        import timm
    except Exception as error:  # its torchvision may not fit torch
        missing = isinstance(error, ModuleNotFoundError) and error.name == "timm"
        reason = "" if missing else f", which cannot be imported ({error})"
        raise ArgumentError(f"{name} needs timm{reason}: pip install 'interpress[timm]'") from error
    return timm


def _checked(name: str) -> str:
    """Return the name without its prefix, after a check that timm knows it."""
    timm, plain = _timm(name), name.removeprefix(PREFIX)
    architecture, _, tag = plain.partition(".")
    if timm.is_model(architecture):
        tags = timm.list_models(f"{architecture}.*", pretrained=True)
        if not tag or plain in tags:
            return plain
        close = tags
    else:
        close = difflib.get_close_matches(plain, timm.list_models(), _LISTED, cutoff=0.5)
    similar = f"; similar names are {', '.join(close[:_LISTED])}" if close else ""
    raise ArgumentError(
        f"timm has no model {plain!r}{similar}. timm.list_models() lists all of them"
    )


def _built(timm: Any, name: str, keywords: Mapping[str, Any]) -> nn.Module:
    try:
        model: nn.Module = timm.create_model(name, **keywords)
    except Exception as error:  # a wrong keyword, or weights that do not fit
        raise ArgumentError(
            f"timm cannot build {name} ({type(error).__name__}: {error}); check --model-arg"
        ) from error
    return model


def _cached_weights(card: Mapping[str, Any]) -> Path | None:
    """Return the file of weights in the cache of Hugging Face or torch, if there is one."""
    repository, url = card.get("hf_hub_id"), card.get("url")
    if repository:
        from huggingface_hub import try_to_load_from_cache

        names = [card.get("hf_hub_filename"), "model.safetensors", "pytorch_model.bin"]
        for name in filter(None, names):
            path = try_to_load_from_cache(repository, name)
            if isinstance(path, str):
                return Path(path)
    if url:
        path = Path(torch.hub.get_dir()) / "checkpoints" / str(url).rsplit("/", 1)[-1]
        return path if path.is_file() else None
    return None


def _warn_of_new_classes(name: str, keywords: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Warn if the classifier cannot have the weights of the cache."""
    classes = keywords.get("num_classes", card.get("num_classes"))
    if classes and classes != card.get("num_classes"):
        warn(
            f"the weights of {name} are for {card.get('num_classes')} classes, so a classifier of "
            f"{classes} is untrained; give --weights"
        )


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values))


def add_pruned(result: Result, folder: Path) -> str:
    """Write the file with which timm rebuilds the network; return what became of that."""
    try:
        save_text(folder / PRUNED, pruned_text(result), overwrite=True)
    except ArgumentError as error:
        return f"{PRUNED} was not written: {str(error).partition(';')[0]}"
    return f"timm rebuilds this network from {folder / PRUNED} and {folder / WEIGHTS}"

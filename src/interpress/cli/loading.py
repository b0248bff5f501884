"""Networks and weights from the command line. Weight files are only ever read as tensors."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from interpress.cli.failing import warn
from interpress.errors import ArgumentError, DataError, StorageError


def load_model(
    name: str,
    arguments: list[str] | None,
    weights: Path | None,
    device: str,
    *,
    judged: bool = True,
) -> nn.Module:
    """The network that a name stands for, with its weights, ready to evaluate.

    `judged` says that its outputs matter, so that missing weights are worth a word.
    """
    where = checked_device(device)
    if not name:
        raise ArgumentError("MODEL is empty; give package.module:function or file.py:function")
    folder = Path(name)
    if folder.is_dir():
        model = _hugging_face(folder, arguments)
    else:
        model = _built(name, keywords(arguments))
        if weights is None and judged:
            warn(f"no --weights for {name}: it is used as the function builds it, trained or not")
    if weights is not None:
        _set_weights(model, read_weights(weights), weights)
    return model.to(where).eval()


def checked_device(name: str) -> torch.device:
    """A device that is there."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"--device {name} cannot be used ({reason}); try --device cpu"
        ) from error
    return device


def keywords(arguments: list[str] | None) -> dict[str, Any]:
    """`key=value` pairs; a value is JSON where it reads as such, else text."""
    found: dict[str, Any] = {}
    for argument in arguments or ():
        key, sign, value = argument.partition("=")
        if not sign or not key.isidentifier():
            raise ArgumentError(f"--model-arg {argument!r}; give key=value, as in num_classes=10")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def _built(name: str, options: dict[str, Any]) -> nn.Module:
    place, sign, attribute = name.rpartition(":")
    if not sign or not place or not attribute:
        raise ArgumentError(
            f"{name!r} is no model; give package.module:function, file.py:function or a folder of "
            "a Hugging Face model"
        )
    factory = _factory(place, attribute)
    try:
        model = factory(**options)
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"{name} failed ({type(error).__name__}: {error}); check --model-arg, or call it in "
            "Python to see why"
        ) from error
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"{name} gave a {type(model).__name__}; it must return a torch.nn.Module"
        )
    return model


def _factory(place: str, attribute: str) -> Callable[..., Any]:
    try:
        module = _module(place)
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"{place} cannot be imported ({type(error).__name__}: {error}); mend it, run from the "
            "folder it lives in, or install what it needs"
        ) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        own = {n: v for n, v in vars(module).items() if not n.startswith("_") and callable(v)}
        known = [*own][:6] + ["..."] * (len(own) > 6)
        raise ArgumentError(f"{place} has no {attribute!r}; it has {', '.join(known) or 'nothing'}")
    if not callable(factory):
        raise ArgumentError(f"{place}:{attribute} is a {type(factory).__name__}, not a function")
    return factory


def _module(place: str) -> Any:
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ArgumentError(f"{place} is not a file; give the path of your Python file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent.resolve()))  # its own imports
        spec.loader.exec_module(module)
        return module
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(place)


def _hugging_face(folder: Path, arguments: list[str] | None) -> nn.Module:
    if arguments:
        raise ArgumentError("--model-arg goes to a function, not to a model folder; leave it out")
    if not (folder / "config.json").is_file():
        raise ArgumentError(f"{folder} has no config.json; give a Hugging Face model folder")
    try:
        import transformers
    except ImportError as error:
        raise ArgumentError(f"{folder} needs transformers: pip install 'interpress[hf]'") from error
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        names = getattr(config, "architectures", None) or []
        kind = getattr(transformers, names[0], None) if names else transformers.AutoModel
        if kind is None:
            raise ValueError(f"transformers has no {names[0]}")
        return kind.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    except Exception as error:
        raise StorageError(
            f"{folder} cannot be loaded ({type(error).__name__}: {str(error).splitlines()[0]}); it "
            "needs a valid config.json and model.safetensors"
        ) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from a file that holds nothing else; no code in it is ever run."""
    if not path.is_file():
        raise StorageError(f"{path} is not a file; give the weights' path")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{path} cannot be read ({error}); save it again") from error
    if path.suffix not in (".pt", ".pth", ".bin"):
        raise StorageError(f"{path}: weights are .safetensors, .pt, .pth or .bin files")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise StorageError(
            f"{path} holds more than tensors, or is damaged, and is not read, because reading "
            "could run code; save model.state_dict() with safetensors"
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise StorageError(f"{path} is no state dict; save model.state_dict()")
    return found


def _set_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    prefix = "module."
    if weights and all(name.startswith(prefix) for name in weights):
        weights = {name[len(prefix) :]: tensor for name, tensor in weights.items()}
    own = model.state_dict()
    missing = [name for name in own if name not in weights]
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    extra = [name for name in weights if name not in own]
    if missing or extra:
        parts = [f"lacks {missing[0]!r}"] if missing else []
        parts += [f"has {extra[0]!r}, which the model does not"] if extra else []
        raise DataError(
            f"{path} {' and '.join(parts)} ({len(missing)} missing, {len(extra)} unknown); is it "
            "the right model, built with the right --model-arg?"
        )
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise DataError(
                f"{path}: {name!r} has shape {tuple(tensor.shape)}, the model's "
                f"{tuple(own[name].shape)}; check --model-arg"
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(f"{path}: {name!r} holds NaN or Inf; use another checkpoint")
    model.load_state_dict(weights, strict=False)

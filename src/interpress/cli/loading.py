"""Build networks and read weight files. Weight files are read as tensors; no code in them runs."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
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
from interpress.cli.model_options import ModelOptions
from interpress.cli.timm_models import PREFIX, timm_model
from interpress.errors import ArgumentError, DataError, StorageError
from interpress.formats.network_formats import as_network, is_network_file

_LISTED = 6  # names of a module that an error lists
_CHUNK = 2**20  # bytes of a file that are hashed at once


def load_model(options: ModelOptions, *, warn_if_untrained: bool = True) -> nn.Module:
    """Return the network with its weights, on its device and in evaluation mode.

    `warn_if_untrained` warns about a function that is used without `--weights`.
    """
    device = checked_device(options.device)
    folder = Path(options.name)
    if is_network_file(folder):
        model = _from_file(options)
    elif options.name.startswith(PREFIX):
        model = timm_model(options, needs_weights=warn_if_untrained)
    elif folder.suffix == ".py":
        listed = ", ".join(_functions_of(_import(options.name))) or "no functions"
        raise ArgumentError(
            f"{options.name} names no function; give {options.name}:FUNCTION, of {listed}"
        )
    elif folder.is_dir() or ":" not in options.name:
        model = _from_hugging_face(options)
    else:
        model = _from_function(options)
        if is_as_built(options) and warn_if_untrained:
            warn(
                f"no --weights for {options.name}; the network is used as the function returns it, "
                "trained or not"
            )
    if options.weights is not None:
        _set_weights(model, read_weights(options.weights), options.weights)
    return model.to(device).eval()


def is_as_built(options: ModelOptions) -> bool:
    """Return whether a network is what a function of the user returns, without `--weights`."""
    is_function = not (
        is_network_file(Path(options.name))
        or options.name.startswith(PREFIX)
        or Path(options.name).is_dir()
        or ":" not in options.name
    )
    return is_function and options.weights is None


def weights_file_of(options: ModelOptions) -> tuple[str, str] | None:
    """Return the name and the SHA-256 of the file that weights come from, if it is one file."""
    path = Path(options.weights or options.name)
    if not path.is_file():
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return path.name, digest.hexdigest()


def checked_device(name: str, flag: str = "--device") -> torch.device:
    """Return a device that tensors can be put on, or raise."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"{flag} {name} cannot be used ({reason}); try {flag} cpu") from error
    return device


def _from_file(options: ModelOptions) -> nn.Module:
    if options.arguments or options.weights is not None:
        raise ArgumentError(
            "--model-arg and --weights are for a function that builds the network, not for a file "
            "that holds the network with its weights; leave them out"
        )
    model: nn.Module = as_network(options.name)
    return model


def _from_function(options: ModelOptions) -> nn.Module:
    name = options.name
    module_name, separator, function_name = name.rpartition(":")
    if not separator or not module_name or not function_name:
        raise ArgumentError(
            f"{name!r} does not name a model; give package.module:function, file.py:function, "
            "timm:NAME, an ONNX or .pt2 file, or a Hugging Face model folder"
        )
    function = _find_function(module_name, function_name)
    try:
        model = function(**options.keywords())
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"{name} failed ({type(error).__name__}: {error}); check --model-arg, or call it in "
            "Python to see why"
        ) from error
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"{name} returned an object of type {type(model).__name__}; it must return a "
            "torch.nn.Module"
        )
    return model


def _find_function(module_name: str, function_name: str) -> Callable[..., Any]:
    try:
        module = _import(module_name)
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"{module_name} cannot be imported ({type(error).__name__}: {error}); fix it, install "
            "what it needs, or run interpress from the folder of the module"
        ) from error
    function = getattr(module, function_name, None)
    if function is None:
        listed = ", ".join(_functions_of(module)) or "no functions"
        raise ArgumentError(f"{module_name} has no {function_name!r}; it has {listed}")
    if not callable(function):
        raise ArgumentError(
            f"{module_name}:{function_name} is not a function but of type "
            f"{type(function).__name__}; name a function that returns the network"
        )
    return function


def _functions_of(module: Any) -> list[str]:
    """Return the first names of a module that can be called."""
    names = [n for n, v in vars(module).items() if not n.startswith("_") and callable(v)]
    return names[:_LISTED] + ["..."] * (len(names) > _LISTED)


def _import(module_name: str) -> Any:
    """Import a module by its dotted name, or a Python file by its path."""
    if not module_name.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(module_name)
    path = Path(module_name)
    if not path.is_file():
        raise ArgumentError(f"{module_name} is not a file; give the path of your Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # so that it can import its neighbours
    spec.loader.exec_module(module)
    return module


def _from_hugging_face(options: ModelOptions) -> nn.Module:
    """Return the model of a folder, or one of the hub that is already on this disk."""
    folder = options.name
    if options.arguments:
        raise ArgumentError(
            "--model-arg is for a function that builds the network, not for a model folder; leave "
            "it out"
        )
    if Path(folder).is_dir() and not (Path(folder) / "config.json").is_file():
        raise ArgumentError(f"{folder} has no config.json; give a Hugging Face model folder")
    try:
        import transformers
    except ImportError as error:
        raise ArgumentError(f"{folder} needs transformers: pip install 'interpress[hf]'") from error
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        names = getattr(config, "architectures", None) or []
        architecture = getattr(transformers, names[0], None) if names else transformers.AutoModel
        if architecture is None:
            raise ValueError(f"transformers has no {names[0]}")
        return architecture.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    except Exception as error:
        if not Path(folder).is_dir():
            raise ArgumentError(
                f"{folder!r} does not name a model: it is no folder, and no model of this name is "
                "in the cache of Hugging Face; give package.module:function, file.py:function, "
                "timm:NAME, an ONNX or .pt2 file, or a Hugging Face model folder"
            ) from error
        line = next(iter(str(error).splitlines()), "")
        raise StorageError(
            f"{folder} cannot be loaded ({type(error).__name__}: {line}); it needs a valid "
            "config.json and model.safetensors"
        ) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the state dict of a file, without running any code that the file may contain."""
    if not path.is_file():
        raise StorageError(f"{path} is not a file; give the path of the weights")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{path} cannot be read ({error}); save it again") from error
    if path.suffix not in (".pt", ".pth", ".bin"):
        raise StorageError(f"{path}: weights are .safetensors, .pt, .pth or .bin files")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise StorageError(
            f"{path} is damaged, or contains more than tensors and could run code when loaded; "
            "save model.state_dict() with safetensors"
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise StorageError(f"{path} does not hold a state dict; save model.state_dict()")
    return content


def _set_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Copy weights into a model, after a check of names, shapes and values."""
    prefix = "module."  # of networks that were saved inside DataParallel
    if weights and all(name.startswith(prefix) for name in weights):
        weights = {name[len(prefix) :]: tensor for name, tensor in weights.items()}
    state = model.state_dict()
    missing = [name for name in state if name not in weights]
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    unknown = [name for name in weights if name not in state]
    if missing or unknown:
        parts = [f"lacks {missing[0]!r}"] if missing else []
        parts += [f"has {unknown[0]!r}, which the model does not have"] if unknown else []
        raise DataError(
            f"{path} {' and '.join(parts)} ({len(missing)} missing, {len(unknown)} unknown); check "
            "that it belongs to this model and that --model-arg is right"
        )
    for name, tensor in weights.items():
        if tensor.shape != state[name].shape:
            raise DataError(
                f"{path}: {name!r} has shape {tuple(tensor.shape)}, but the model needs "
                f"{tuple(state[name].shape)}; check --model-arg"
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(f"{path}: {name!r} holds NaN or Inf; use another checkpoint")
    model.load_state_dict(weights, strict=False)

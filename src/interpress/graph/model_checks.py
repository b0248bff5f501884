"""Models that cannot be captured or changed, refused with the reason."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from interpress.errors import CaptureError


def check_model(model: nn.Module) -> None:
    """Raise an error if the model cannot be captured."""
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError(
            f"{type(model).__name__} is a TorchScript model, which torch.export cannot capture; "
            "pass the Python model it was scripted or traced from"
        )
    check_has_values(model)
    _check_not_quantised(model)
    _check_stored_weights(model)


def _check_not_quantised(model: nn.Module) -> None:
    """Refuse weights that are stored as integers with scales: channels cannot be mixed in them."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        packed = type(module).__module__.startswith(("torch.ao.nn.quantized", "bitsandbytes."))
        integer = isinstance(weight, Tensor) and weight.ndim > 1 and not weight.is_floating_point()
        subclass = isinstance(weight, Tensor) and "torchao" in type(weight.data).__module__
        integer_only = any(
            hasattr(module, part) for part in ("qweight", "weight_packed", "weight_scale")
        )
        if packed or integer or subclass or integer_only:
            raise CaptureError(
                f"the weight of {name!r} ({type(module).__name__}) is quantised; compress the "
                "model in floating point first, and quantise the smaller one"
            )


def check_has_values(model: nn.Module) -> None:
    """Raise an error if a parameter or buffer has no values yet."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise CaptureError(
                f"parameter {name!r} has no shape yet, because its module is lazy; run the model "
                "once on an example first"
            )
        if tensor.is_inference():
            raise CaptureError(
                f"{name!r} was created under torch.inference_mode, so it can never be trained; "
                "build the model outside of it"
            )
        if tensor.is_meta:
            raise CaptureError(
                f"{name!r} is on the meta device and has no values; load the weights first, "
                "for example with model.to_empty(device='cpu') and load_state_dict"
            )


def _check_stored_weights(model: nn.Module) -> None:
    """Refuse modules that compute a weight: surgery can only change stored tensors."""
    for name, module in model.named_modules():
        if hasattr(module, "parametrizations"):
            tensors = ", ".join(module.parametrizations)
            raise CaptureError(
                f"module {name!r} computes its {tensors} by a parametrization; make it a plain "
                "parameter first, with "
                "torch.nn.utils.parametrize.remove_parametrizations(module, tensor_name)"
            )
        hooks = {type(hook).__name__ for hook in module._forward_pre_hooks.values()}
        for hook in hooks & {"WeightNorm", "SpectralNorm"}:
            raise CaptureError(
                f"module {name!r} computes its weight in a {hook} hook; make it a plain "
                "parameter first, with torch.nn.utils.remove_weight_norm or remove_spectral_norm"
            )

"""Write a smaller network in the form that timm reads for its own pruned networks.

timm stores one entry `name:[sizes]` per tensor in a text, and its `adapt_model_from_string` gives
the layers of a freshly built model these sizes. It can change the widths of convolutions, batch
norms and inputs of linear layers. Whether that is the whole network is found out by trying.
"""

from __future__ import annotations

import copy
import os
import textwrap
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from interpress.errors import ArgumentError, StorageError
from interpress.files.folder import replaced_folder
from interpress.files.tensor_file import save_tensors, target_path
from interpress.pipeline.outcome import Outcome
from interpress.storage.example_description import describe
from interpress.storage.fingerprint import fingerprint, matches
from interpress.storage.result_folder import PRUNED, WEIGHTS

_LONGEST = 200  # characters of an error of timm
_INSTEAD = "use result.save and interpress.load"


def save_timm(outcome: Outcome, folder: str | os.PathLike[str], overwrite: bool) -> None:
    """Write the sizes and the weights; raise if timm cannot rebuild the network from them."""
    text = pruned_text(outcome)
    target = _checked(target_path(folder), overwrite)
    with replaced_folder(target) as temporary:
        (temporary / PRUNED).write_text(text, encoding="utf-8")
        save_tensors(temporary / WEIGHTS, "timm-network", _tensors(outcome.model), {})


def pruned_text(outcome: Outcome) -> str:
    """Return the sizes of a smaller network as timm writes them, after trying them."""
    if outcome.ranks:
        raise ArgumentError(
            f"{len(outcome.ranks)} layers of this network are two thin ones, which timm cannot "
            f"rebuild; {_INSTEAD}, or compress with lowrank=False"
        )
    adapt = _adapt_function(outcome.original)
    tensors = _tensors(outcome.model)
    text = "***".join(f"{name}:{list(tensor.shape)}" for name, tensor in tensors.items())
    problem = _problem(adapt, outcome, text, tensors)
    if problem is not None:
        raise ArgumentError(
            f"timm cannot rebuild this network from the sizes of its tensors ({problem}); it "
            "changes only plain and depthwise convolutions, batch norms, and inputs of linear "
            f"layers; {_INSTEAD}"
        )
    return text


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that timm loads, which are those of the state dict.

    A tensor with several names is written several times: a file cannot hold it once.
    """
    tensors: dict[str, Tensor] = {}
    written: set[int] = set()
    for name, tensor in model.state_dict().items():
        again = tensor.data_ptr() in written
        written.add(tensor.data_ptr())
        tensors[name] = tensor.clone() if again else tensor
    return tensors


def _adapt_function(original: nn.Module) -> Any:
    """Return timm's function that gives layers new sizes."""
    if not type(original).__module__.startswith("timm."):
        raise ArgumentError(f"{type(original).__name__} is not a model of timm; {_INSTEAD}")
    from timm.models import adapt_model_from_string

    return adapt_model_from_string


def _problem(adapt: Any, outcome: Outcome, text: str, tensors: dict[str, Tensor]) -> str | None:
    """Return why timm's network is not the smaller one, or None if it is."""
    try:
        rebuilt = adapt(copy.deepcopy(outcome.original), text)
        rebuilt.load_state_dict(tensors, strict=True)
    except Exception as error:  # timm's code for a structure that it does not expect
        # of a state dict that does not fit, the first line is a heading
        lines = [line.strip() for line in str(error).splitlines()]
        reason = lines[1] if len(lines) > 1 and lines[0].endswith(":") else " ".join(lines[:1])
        return f"{type(error).__name__}: {textwrap.shorten(reason, _LONGEST, placeholder=' ...')}"
    expected = fingerprint(outcome.network.model, describe(outcome.spaces.program.example))
    judged = rebuilt.eval().get_submodule("" if outcome.part is None else outcome.part.name)
    if expected is None or not matches(judged, expected):
        return "its outputs differ"
    return None


def _checked(target: Path, overwrite: bool) -> Path:
    if target.exists() and not target.is_dir():
        raise StorageError(f"{target} is a file; give a folder")
    names = {path.name for path in target.iterdir()} if target.exists() else set()
    if names - {PRUNED, WEIGHTS}:
        raise StorageError(f"{target} holds other files; choose an empty folder or a new path")
    if names and not overwrite:
        raise StorageError(f"{target} exists; pass overwrite=True to replace it")
    return target

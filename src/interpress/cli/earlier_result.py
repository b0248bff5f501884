"""Load the network of a result folder, and notice when a run is not comparable with that result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from interpress.cli.data_files.batches import Batches
from interpress.cli.failing import note, warn
from interpress.cli.model_options import ModelOptions
from interpress.data.calibration_set import CalibrationSet
from interpress.data.example_hashes import hashes_of
from interpress.data.preprocessing import Preprocessing, differences
from interpress.errors import ArgumentError
from interpress.storage.architecture import has_other_weights
from interpress.storage.plan_record import used_examples
from interpress.storage.result_folder import read_plan

_IMAGE_NUMBERS = ("size", "mean", "std")


def load_earlier(
    folder: Path,
    network: nn.Module,
    options: ModelOptions,
    batches: Batches,
    *,
    only_these_weights: bool = False,
) -> nn.Module:
    """Return the network in a folder; warn if it was made from other weights or other inputs.

    With `only_these_weights`, both are errors.
    """
    smaller = interpress.load(folder, network)
    plan = read_plan(folder)
    if has_other_weights(plan, network):
        source = options.weights or options.name
        if only_these_weights:
            raise ArgumentError(
                f"{folder} was made from other weights than those of {source}, so its network "
                "would be trained towards another one; give the weights that were compressed with "
                "--weights, or compress these"
            )
        warn(
            f"{folder} was made from other weights than those of {source}, so this compares more "
            "than the compression; give the weights that were compressed with --weights, or "
            "compress these"
        )
    saved, here = plan.get("preprocessing") or {}, batches.preprocessing()
    if changed := differences(saved, here):
        text = _differently_prepared(folder, changed, saved, here)
        if only_these_weights:  # it would learn from inputs that it never gets
            raise ArgumentError(text)
        warn(text)
    return smaller


def say_if_used(folder: Path, data: CalibrationSet) -> None:
    """Say how many of the examples helped to make the result in a folder."""
    if not (known := used_examples(read_plan(folder))):
        return
    found = hashes_of(data)
    used = sum(one in known for one in found)
    if used:
        warn(
            f"{used:,} of the {len(found):,} examples calibrated or distilled {folder}, so "
            "agreement on them is too optimistic; leave them out"
        )
    else:
        note(f"none of the {len(found):,} examples calibrated or distilled {folder}")


def _differently_prepared(
    folder: Path, changed: Preprocessing, saved: Preprocessing, here: Preprocessing
) -> str:
    then, now = (", ".join(_said(name, record) for name in changed) for record in (saved, here))
    remedy = " and ".join(dict.fromkeys(_remedy(name, saved) for name in changed))
    return (
        f"{folder} was made from examples with {then}, but here they have {now}; for the same "
        f"inputs, give {remedy}"
    )


def _said(name: str, record: Preprocessing) -> str:
    if name == "vocabulary":
        return f"the tokenizer {record.get('tokenizer')} ({record[name]})"
    return f"{name} {_spelled(record[name])}"


def _remedy(name: str, saved: Preprocessing) -> str:
    """Return the option that prepares the inputs as they were for the saved result."""
    value = saved[name]
    if name in _IMAGE_NUMBERS and saved.get("preset") is not None:
        return f"--preset {saved['preset']}"
    if name == "color":
        return "--gray" if value == "gray" else "no --gray"
    if name == "vocabulary":
        return "the same --tokenizer"
    if name in (*_IMAGE_NUMBERS, "crop", "interpolation", "length"):
        return f"no --{name}" if value is None else f"--{name} {_spelled(value)}"
    return f"examples with {name} {_spelled(value)}"


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_spelled(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ",".join(map(_spelled, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

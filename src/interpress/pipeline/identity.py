"""What makes a run the same run: the model, the data, the options and the software."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from interpress._version import __version__
from interpress.allocation.effects import EXAMPLES, trial_widths
from interpress.calibration.study import Study
from interpress.files.checkpoint import digest
from interpress.graph.blocks import border_bytes
from interpress.graph.digest import weights_digest
from interpress.pipeline.options import Options
from interpress.spaces.batching import captured_examples

_NETWORKS_COMPARED = 4  # whose values are kept while allocations are compared
_PROOF = 16  # examples whose values take as much as those of the proof, in double precision


def identity(study: Study, options: Options) -> dict[str, str]:
    """Return a digest per thing that must be the same for a run to go on."""
    assert options.budget is not None
    asked: dict[str, Any] = {
        "budget": [options.budget.kind, options.budget.value],
        "method": asdict(options.method),
        "limits": asdict(options.limits),
        "exclude": options.exclude,
        "memory": options.memory,
        "seed": options.seed,
        "kind": options.kind,
        "output": _named(options.output),
        "forward": _named(options.forward),
        "mask": _named(options.mask),
        "device": str(study.spaces.program.device),
    }
    return {
        "model": weights_digest(study.original),
        "data": study.require_data().digest(),
        "set of options": digest(asked),
        "version of interpress or torch": f"{__version__} {torch.__version__}",
    }


def checkpoint_bytes(study: Study) -> int:
    """Return about how many bytes a checkpoint takes at most.

    It holds the weights of the result, the values of every network in which one space is smaller,
    and the values of the networks that are compared or built.
    """
    program, walk = study.spaces.program, study.require_walk()
    trials = sum(len(trial_widths(space)) for space in study.spaces.shrinkable)
    held = study.held_examples * _NETWORKS_COMPARED
    examples = EXAMPLES * trials + held + study.fit_examples + _PROOF
    per_example = border_bytes(program, walk.blocks) // captured_examples(study.spaces)
    return program.weight_bytes + per_example * examples


def _named(option: Any) -> str:
    """Return what stands for an option that may be a function."""
    if isinstance(option, Tensor) or not callable(option):
        return repr(option)
    return f"{getattr(option, '__module__', '')}.{getattr(option, '__qualname__', '')}"

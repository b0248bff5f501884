"""The only place that writes weights: a smaller copy of a network from kept channels and `T`.

Every weight that makes or carries a space is *selected*, every weight that reads it *absorbs*:
`W <- W @ T.T` along the dim it reads. The copy is made with the smaller tensors put in the place
of the larger ones, so shared weights stay shared and the original is never touched.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from interpress.errors import SurgeryError
from interpress.surgery.attributes import update_attributes
from interpress.surgery.cut import Cut


def shrunk_copy(cut: Cut) -> nn.Module:
    """The smaller network that a checked cut describes."""
    own = cut.spaces.program.parameters()
    rounded = {name: w.to(own[name].dtype, copy=True) for name, w in cut.weights.items()}
    smaller = copy_with(cut.spaces.program.model, rounded)
    update_attributes(cut, smaller)
    return smaller


def copy_with(model: nn.Module, changed: Mapping[str, Tensor]) -> nn.Module:
    """A deep copy of the model in which some tensors are replaced."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    memo: dict[int, Any] = {}
    for name, tensor in changed.items():
        old = named[name]
        new: Tensor = tensor.detach()
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        for key, value in vars(old).items():
            setattr(new, key, copy.deepcopy(value))
        memo[id(old)] = new
    try:
        return copy.deepcopy(model, memo)
    except Exception as problem:
        raise SurgeryError(
            f"{type(model).__name__} cannot be copied ({type(problem).__name__}: {problem}); take "
            "what cannot be copied (locks, files, generators) out of its attributes first"
        ) from problem

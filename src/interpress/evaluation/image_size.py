"""Outputs whose last dim depends on the size of the images, such as the boxes of a detector.

The number of classes does not depend on the size of an image. So an output (examples, entries,
places) with more places in a larger image holds numbers per place, and no scores of classes along
its last dim.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from interpress.evaluation.outputs import flatten_output
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation


def outputs_of_places(
    model: nn.Module, example: Example, outputs: Mapping[str, Tensor]
) -> frozenset[str]:
    """Return the names of three-dimensional outputs whose last dim is longer for larger images.

    The model runs once, on one image of twice the height and width. There are none if the inputs
    hold no images, or if the model takes images of one size only.
    """
    doubtful = {n: t for n, t in outputs.items() if t.ndim == 3 and t.is_floating_point()}
    images = [t for t in example.tensors() if t.ndim == 4 and t.is_floating_point()]
    if not doubtful or not images:
        return frozenset()
    larger = example.map(_larger)
    try:
        with evaluation(model), torch.no_grad(), torch.random.fork_rng():
            grown, _ = flatten_output(larger.call(model))
    except Exception:  # the model's code may raise anything
        return frozenset()
    return frozenset(
        name
        for name, tensor in doubtful.items()
        if name in grown and grown[name].ndim == 3 and grown[name].shape[-1] > tensor.shape[-1]
    )


def _larger(tensor: Tensor) -> Tensor:
    first = tensor[:1] if tensor.ndim else tensor
    is_images = tensor.ndim == 4 and tensor.is_floating_point()
    return first.repeat(1, 1, 2, 2) if is_images else first

"""SNIP (Lee, Ajanthan and Torr, ICLR 2019), made structural and without labels.

SNIP multiplies every weight by a gate c and scores it by `|dL/dc|` at c = 1, that is `|w dL/dw|`.
Made structural: all weights that produce a channel share one gate, so the score of a channel is

    | sum over its filters of  w * dL/dw |.

There are no labels here, so L is the cross-entropy with the classes that the network itself
predicts. The publication scores networks before training; these networks are trained. Batch norms
keep their statistics.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

import interpress
from interpress.extend import SELECTIONS, Profile, Ranking, ranked, selection
from interpress.selection.producer_weights import ProducerWeights
from interpress.spaces.channel_space import ChannelSpace

NAME = "snip"
_AT_ONCE = 250  # images per batch
_scores: WeakKeyDictionary[ChannelSpace, Tensor] = WeakKeyDictionary()
"""Scores of the analyses that were prepared. Gradients need the network and its inputs, which a
selection does not see."""


def snip(profile: Profile) -> Ranking:
    """Keep the channels whose gates change the loss most; the analysis must be prepared."""
    return ranked(_scores[profile.space])


def prepare(analysis: interpress.Analysis, images: Tensor) -> None:
    """Measure the scores of an analysis, so that it can use `Method(selection="snip")`.

    The selection is registered here and not on import, because it needs these scores.
    """
    if NAME not in SELECTIONS:
        selection(NAME)(snip)
    spaces = analysis.spaces
    products = gated_gradients(spaces.program.model, images)
    for space in spaces.shrinkable:
        filters = ProducerWeights(space, spaces, products).filters()
        _scores[space] = torch.stack([rows.sum(1) for rows in filters]).sum(0).abs()


def gated_gradients(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Return `w * dL/dw` of every parameter; L is the mean over all images."""
    parameters = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    device = next(iter(parameters.values())).device
    totals = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for batch in images.split(_AT_ONCE):
        scores = torch.func.functional_call(model, parameters, (batch.to(device),))
        loss = nn.functional.cross_entropy(scores, scores.argmax(1), reduction="sum")
        gradients = torch.autograd.grad(loss / len(images), list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            totals[name] += gradient
    return {name: parameters[name].detach() * total for name, total in totals.items()}

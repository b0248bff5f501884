"""Labels that operators unite are one channel; slabs stay apart unless they leave as a whole."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.spaces.classes import classify
from interpress.spaces.follow import follow


def test_united_labels_are_one_class() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    trace = follow(capture(model, torch.randn(2, 4)))
    classes = classify(trace)
    made, bias, read = (
        trace.weights[name].labellings[dim].labels.reshape(-1)
        for name, dim in (("0.weight", 0), ("0.bias", 0), ("2.weight", 1))
    )
    assert torch.equal(classes.channel[made], classes.channel[bias])
    assert torch.equal(classes.channel[made], classes.channel[read])
    assert classes.channel[made].unique().numel() == 6
    assert not bool(classes.is_slab.any())


class Heads(nn.Module):
    """An attention with two heads of three dims, whose values are scaled per dim on request."""

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 6) for _ in range(3))
        self.o = nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.rand(3)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        v = v if self.scale is None else v * self.scale
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_a_scale_shared_by_all_heads_ties_their_dims() -> None:
    for scaled, expected in ((False, 6), (True, 3)):
        trace = follow(capture(Heads(scaled), torch.randn(2, 5, 4)))
        classes = classify(trace)
        value_channels = trace.weights["v.weight"].labellings[0].labels.reshape(-1)
        assert classes.channel[value_channels].unique().numel() == expected
        assert classes.fine[value_channels].unique().numel() == 6
        assert bool(classes.is_slab.any())

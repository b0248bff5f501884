"""Every weight gets labels, outputs are frozen, and NaN is noticed."""

from __future__ import annotations

import torch
from tests.surgery.every_way import shrinkable_names, shrinks_every_way
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.spaces.follow import follow


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def test_weights_have_one_labelling_per_dim() -> None:
    trace = follow(capture(model(), torch.randn(2, 4)))
    assert set(trace.weights) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    shapes = [tuple(la.labels.shape) for la in trace.weights["0.weight"].labellings]
    assert shapes == [(6, 1), (1, 4)]
    assert [op.family for op in trace.ops] == ["aten.linear", "aten.relu", "aten.linear"]
    assert trace.ops[1].outputs[0].shape == (2, 6)
    assert trace.ops[1].outputs[0].varying == {0}


def test_outputs_are_frozen() -> None:
    trace = follow(capture(model(), torch.randn(2, 4)))
    (output,) = trace.outputs
    (labelling,) = output.labellings
    frozen = [labels for labels, why in trace.frozen if why == "it is an output of the model"]
    assert torch.equal(torch.cat(frozen), labelling.labels.reshape(-1).unique())


def test_nan_outputs_are_noticed() -> None:
    network = model()
    assert follow(capture(network, torch.randn(2, 4))).finite
    with torch.no_grad():
        network[2].bias.fill_(float("nan"))
    assert not follow(capture(network, torch.randn(2, 4))).finite


def test_buffers_that_a_forward_writes_are_not_changed() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Linear(8, 3)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("average", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.o(self.a(x).relu())
            self.calls.add_(1)
            self.average.mul_(0.9).add_(0.1 * y.detach().mean(0))
            return y

    assert shrinkable_names(shrinks_every_way(Counting(), torch.randn(5, 4))) == {"a"}

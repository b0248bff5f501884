"""The epilogue of a layer is recognized as far as its value has a single user."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.graph.patterns import Epilogue, arguments_of, batch_norm_after, epilogue_of, family
from interpress.graph.program import Program

KINDS = [
    "alone",
    "norm",
    "norm relu",
    "add relu",
    "norm dropout add",
    "scaled add",
    "used twice",
    "used three times",
]


class Layer(nn.Module):
    """A convolution, followed by what `kind` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv, self.norm = nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4)
        for tensor in (self.norm.weight, self.norm.bias, *self.norm.buffers()):
            if tensor.is_floating_point():
                tensor.data.uniform_(0.3, 1.5)
        self.side = nn.Conv1d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y, kind = self.conv(x), self.kind
        side = self.side(x) if "add" in kind else y
        y = self.norm(y) if "norm" in kind else y
        y = F.dropout(y, training=self.training) if "dropout" in kind else y
        if "add" in kind:
            y = torch.add(side, y, alpha=2 if "scaled" in kind else 1)
        y = y.relu() if "relu" in kind else y
        if kind == "used twice":
            return y * y.sigmoid()
        return y * y.sigmoid() + y if kind == "used three times" else y.flatten(1)


def epilogue(kind: str) -> tuple[Layer, Program, Epilogue]:
    torch.manual_seed(0)
    model = Layer(kind).eval()
    program = capture(model, torch.randn(2, 3, 5))
    node = next(node for node in program.operators() if family(node) == "aten.conv1d")
    return model, program, epilogue_of(program, node, program.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_epilogues(kind: str) -> None:
    _, _, found = epilogue(kind)
    adds = "add" in kind and "scaled" not in kind
    assert (found.norm is not None) == ("norm" in kind)
    names = {"norm relu": "aten.relu", "add relu": "aten.relu", "used twice": "aten.silu"}
    assert (found.activation.name if found.activation else None) == names.get(kind)
    assert (found.summand is not None) == adds
    expected = "aten.add" if adds else "aten.batch_norm" if "norm" in kind else "aten.conv1d"
    assert family(found.last) == expected
    if found.summand is not None:
        assert found.summand.name == "conv1d_1"


def test_a_batch_norm_is_a_scale_and_a_shift() -> None:
    model, _, found = epilogue("norm")
    assert found.norm is not None
    assert found.norm.running_mean == "norm.running_mean"
    y = torch.randn(2, 4, 5, dtype=torch.float64)
    scale, shift = found.norm.scale[:, None], found.norm.shift[:, None]
    assert scale.dtype == torch.float64
    torch.testing.assert_close(scale * y + shift, model.norm.double()(y))


def test_batch_statistics_are_not_folded() -> None:
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4, track_running_stats=False))
    program = capture(model, torch.randn(2, 3, 5))
    node = next(node for node in program.operators() if family(node) == "aten.conv1d")
    assert batch_norm_after(program, node, program.parameters()) is None


def test_arguments_are_named_by_the_schema() -> None:
    program = capture(nn.Conv2d(3, 4, 3, stride=2, bias=False), torch.randn(2, 3, 8, 8))
    (node,) = program.operators()
    arguments = arguments_of(node)
    assert family(node) == "aten.conv2d"
    assert list(arguments["stride"]) == [2, 2]
    assert program.weight_name(arguments["weight"]) == "weight"
    assert "groups" not in arguments

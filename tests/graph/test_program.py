"""Programs check their inputs, and know which values are scores and when values are released."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress import DataError
from interpress.graph.capture import capture
from interpress.graph.executor import Executor
from interpress.graph.program import family


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(5, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) - self.b(y)


def test_keyword_inputs_in_any_order() -> None:
    model = Two().eval()
    x, y = torch.randn(3, 4), torch.randn(3, 5)
    program = capture(model, {"y": y, "x": x})
    assert torch.equal(Executor(program).run({"x": x, "y": y})[0], model(x, y))
    assert torch.equal(Executor(program).run({"y": y, "x": x})[0], model(x, y))
    with pytest.raises(DataError, match=r"captured with 2 inputs .* got 1; pass inputs"):
        Executor(program).run({"x": x})


def test_other_shapes_than_captured_are_refused() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.a(x[i]) for i in range(x.shape[0])])

    looped = capture(Loop(), torch.randn(3, 4))
    message = r"has shape \(6, 4\), but the model was captured for \(3, 4"
    with pytest.raises(DataError, match=message):
        Executor(looped).run(torch.randn(6, 4))
    pooled = nn.Sequential(nn.Conv1d(2, 4, 1), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(DataError, match=r"captured for \(any, 2, 5\)"):
        Executor(capture(pooled, torch.randn(3, 2, 5))).run(torch.randn(3, 2, 6))


def test_score_nodes_are_the_values_that_decisions_come_from() -> None:
    class Decide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return (self.a(x) > 0).sum(-1), self.b(x)

    program = capture(Decide(), torch.randn(3, 4))
    assert program.decides
    # breadth first: an output that is floating-point comes before what a decision depends on
    assert [node.name for node in program.score_nodes()] == ["linear_1", "linear"]
    assert not capture(nn.Linear(4, 3), torch.randn(3, 4)).decides


def test_every_value_but_the_output_is_released_after_its_last_use() -> None:
    program = capture(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4))
    released = [node for nodes in program.released_after.values() for node in nodes]
    assert len(released) == len(set(released))
    assert set(program.nodes[:-1]) - set(released) == set(program.output_nodes())
    order = {node: index for index, node in enumerate(program.nodes)}
    for node, values in program.released_after.items():
        assert all(order[user] <= order[node] for value in values for user in value.users)


def test_weights_are_named_and_inputs_are_not() -> None:
    program = capture(nn.Linear(4, 3), torch.randn(2, 4))
    (linear,) = program.operators()
    assert [program.weight_name(arg) for arg in linear.args] == [None, "weight", "bias"]
    assert program.weight_name("text") is None


class Rotates(nn.Module):
    """Angles in single precision whatever the weights are, as in a rotary embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("frequencies", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1])[:, None]
        angles = positions.to(torch.float32) * self.frequencies.to(torch.float32)
        return self.layer(x) * angles.cos()


def test_what_is_computed_from_casts_alone_has_their_precision() -> None:
    program = capture(Rotates(), torch.randn(2, 5, 4))
    names = [family(node) for node in program.cast_nodes]
    assert names == ["aten.to", "aten.to", "aten.mul", "aten.cos"]
    assert set(program.cast_nodes.values()) == {torch.float32}

"""Captured operators know the node of the graph module that they came from."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from interpress.graph.capture import capture


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 6)

    def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        return {"y": self.a(x).view(-1, 2, 3).relu() * scale}


def test_every_operator_has_its_node() -> None:
    model = fx.symbolic_trace(Net())
    names = [node.name for node in model.graph.nodes]
    code, modules = model.code, dict(model.named_modules())
    program = capture(model, {"x": torch.randn(3, 4), "scale": torch.randn(3, 1, 1)})
    origins = {str(n.target): n.meta.get("origin") for n in program.operators()}
    assert origins["aten.view.default"] == ("", "view")
    assert origins["aten.mul.Tensor"] == ("", "mul")
    assert set(program.weights.values()) == {"a.weight", "a.bias"}
    # the model itself is as it was
    assert [node.name for node in model.graph.nodes] == names
    assert model.code == code
    assert dict(model.named_modules()) == modules


def test_a_graph_module_inside_of_a_model() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = fx.symbolic_trace(Net())

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x, scale=x[:, :1, None])["y"]
            return out

    model = Outer()
    inner = model.inner
    program = capture(model, torch.randn(3, 4))
    origins = {str(n.target): n.meta.get("origin") for n in program.operators()}
    assert origins["aten.view.default"] == ("inner", "view")
    assert origins["aten.slice.Tensor"] is None
    assert model.inner is inner
    assert set(program.weights.values()) == {"inner.a.weight", "inner.a.bias"}

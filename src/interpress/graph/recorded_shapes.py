"""The shapes of the values in a graph while it runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx


class RecordedShapes(fx.Interpreter):
    """Runs a graph and remembers the shape of every tensor, by the name of its node."""

    def __init__(self, network: fx.GraphModule) -> None:
        super().__init__(network)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result

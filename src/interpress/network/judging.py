"""Judge several networks while all of them walk through the same blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import fx

from interpress.evaluation.evaluator import Judge
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement
from interpress.graph.example import Example
from interpress.graph.executor import Frame
from interpress.graph.passage import Passage

Hooks = Mapping[str, dict[str, Any]]
"""By the name of a network, the arguments `before` and `after` of its runs."""


class Judging:
    """The original and other networks on the same examples, at the border between two blocks."""

    def __init__(
        self,
        meaning: OutputMeaning,
        examples: Sequence[Example],
        original: Passage,
        networks: Mapping[str, Passage],
    ) -> None:
        self._examples, self.original, self.networks = examples, original, dict(networks)
        self._judge = Judge(meaning, len(networks))

    def advance(
        self, nodes: Sequence[fx.Node], hooks: Hooks, *, original: Sequence[fx.Node]
    ) -> dict[str, Agreement] | None:
        """Run a block in the original, and in every network with its hooks."""
        self.original.advance(original)
        for name, passage in self.networks.items():
            passage.advance(nodes, partial(_given, hooks.get(name, {})))
        return None

    def finish(
        self, nodes: Sequence[fx.Node], hooks: Hooks, *, original: Sequence[fx.Node]
    ) -> dict[str, Agreement] | None:
        """Run the last block and return the agreements; the outputs of one batch are held."""
        runs: list[tuple[Passage, Sequence[fx.Node], dict[str, Any]]]
        runs = [(self.original, original, {})]
        runs += [(passage, nodes, hooks.get(n, {})) for n, passage in self.networks.items()]
        with contextlib.ExitStack() as stack:
            for passage, block, _ in runs:
                stack.enter_context(passage.executor.holding(block))
            for batch, example in enumerate(self._examples):
                outputs = []
                for passage, block, hook in runs:
                    with passage.working(passage.frames[batch]):
                        passage.executor.advance(passage.frames[batch], block, **hook)
                    outputs.append(passage.outputs(batch))
                    passage.frames[batch] = Frame()
                self._judge.add(outputs[0], outputs[1:], example)
        return dict(zip(self.networks, self._judge.results(), strict=True))


def _given(hooks: dict[str, Any], batch: int) -> dict[str, Any]:
    return hooks

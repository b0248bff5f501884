"""Rows of the original's layers that calibration records are those that a refit computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from interpress import find_spaces, shrink
from interpress.calibration.calibrate import calibrate
from interpress.calibration.layer_outputs import ChosenOutputs, LayerOutputs
from interpress.data.batches import take
from interpress.graph.dense import dense_layer_of
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.patterns import epilogue_of
from interpress.refit.refit import RefitResult, refit
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut

IMAGES = torch.randn(90, 3, 6, 6, generator=torch.Generator().manual_seed(2))
SIZES = (50, 40)
CHOSEN = torch.tensor([0, 3, 4, 17, 49]), torch.tensor([1, 39])


class Residual(nn.Module):
    """A residual connection around one layer with a batch norm, and a layer on positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.branch = nn.Conv2d(12, 16, 1)
        self.back = nn.Conv2d(16, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.mix = nn.Linear(12, 8)
        self.last = nn.Linear(8, 4)
        nn.init.uniform_(self.norm.running_mean)
        nn.init.uniform_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        x = (x + self.norm(self.back(self.branch(x).relu()))).relu()
        x = self.mix(x.flatten(2).mT).relu()  # (examples, positions, channels)
        return self.last(x.mean(1))


def batches() -> list[Example]:
    return [Example.of(part) for part in IMAGES.split(SIZES)]


def recorded(spaces: Spaces, per_example: int, most_bytes: int = 2**30) -> LayerOutputs:
    outputs = LayerOutputs(spaces.program, lambda dense: per_example, most_bytes)
    calibrate(spaces, batches(), layer_outputs=outputs)
    return outputs


def layers(spaces: Spaces) -> list[fx.Node]:
    program = spaces.program
    parameters = program.parameters()
    return [n for n in program.operators() if dense_layer_of(program, n, parameters) is not None]


@pytest.mark.parametrize("per_example", [7, 100])
@pytest.mark.parametrize("every", [True, False])
def test_rows_are_those_of_the_original(per_example: int, every: bool) -> None:
    """With 7 rows of each example positions are sampled; with 100 all 36 are taken."""
    spaces = find_spaces(Residual().eval(), IMAGES[:4])
    program, parameters = spaces.program, spaces.program.parameters()
    outputs = recorded(spaces, per_example)
    assert outputs.usable
    seen_summands = 0
    for number, batch in enumerate(batches()):
        chosen = torch.arange(SIZES[number]) if every else CHOSEN[number]
        values = Executor(program).record(take(batch, chosen))
        for node in layers(spaces):
            dense, epilogue = (
                dense_layer_of(program, node, parameters),
                epilogue_of(program, node, parameters),
            )
            assert dense is not None
            rows = outputs.rows(node, number, chosen)
            source = node if epilogue.norm is None else epilogue.norm.node
            expected = dense.outputs(values[source], rows.at)
            torch.testing.assert_close(rows.output, expected, rtol=1e-4, atol=1e-5)
            if epilogue.summand is not None:
                assert rows.summand is not None
                summand = dense.outputs(values[epilogue.summand], rows.at)
                torch.testing.assert_close(rows.summand, summand, rtol=1e-4, atol=1e-5)
                seen_summands += 1
    assert seen_summands == len(SIZES)


def test_a_refit_does_the_same_with_and_without_a_record() -> None:
    """All positions are taken, so that both look at the same rows."""
    spaces = find_spaces(Residual().eval(), IMAGES[:4])
    kept = {"first": torch.arange(0, 12, 2), "branch": torch.arange(0, 16, 2)}
    cut, smaller, outputs = Cut(spaces, kept), shrink(spaces, kept), recorded(spaces, 100)
    some = [take(batch, chosen) for batch, chosen in zip(batches(), CHOSEN, strict=True)]

    def solved(examples: list[Example], chosen: list[Tensor] | None) -> RefitResult:
        record = None if chosen is None else ChosenOutputs(outputs, (0, 1), chosen)
        return refit(cut, smaller, examples, recorded=record)

    everything = [torch.arange(size) for size in SIZES]
    for examples, chosen in ((batches(), everything), (some, list(CHOSEN))):
        live, again = solved(examples, None), solved(examples, chosen)
        assert live.weights.keys() == again.weights.keys()
        assert len(live.errors) == 5
        for name, weight in live.weights.items():
            torch.testing.assert_close(again.weights[name], weight, rtol=1e-3, atol=1e-4)


def test_nothing_is_kept_of_too_large_a_record() -> None:
    spaces = find_spaces(Residual().eval(), IMAGES[:4])
    needed = sum(
        t.nbytes
        for node in layers(spaces)
        for number, size in enumerate(SIZES)
        for t in recorded(spaces, 7).rows(node, number, torch.arange(size))[1:3]
        if t is not None
    )
    assert recorded(spaces, 7, needed).usable
    too_large = recorded(spaces, 7, needed - 1)
    assert not too_large.usable
    assert not too_large._rows


def test_examples_with_a_mask_are_not_recorded() -> None:
    spaces = find_spaces(Residual().eval(), IMAGES[:4])
    outputs = LayerOutputs(spaces.program, lambda dense: 7, 2**30)
    masked = Example((IMAGES,), masks=(torch.ones(90, 36, dtype=torch.bool),))
    calibrate(spaces, [masked], layer_outputs=outputs)
    assert not outputs.usable

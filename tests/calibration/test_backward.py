"""A network that runs backwards says what the errors of a layer do to its predictions."""

from __future__ import annotations

import pytest
import torch
from tests.pretrained.models import build, texts
from torch import nn

import interpress
from interpress.calibration.backward import _draw, measure_sensitivities
from interpress.calibration.sensitivity import Sensitivity
from interpress.calibration.streamed import blocks_of
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.blocks import Block
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.normalised import normalised_value
from interpress.spaces.spaces import Spaces


def measured(
    name: str, *, whole: bool = False, count: int = 64
) -> tuple[Spaces, dict[str, Sensitivity]]:
    model, data = build(name), texts(count)
    example = Example((data,)).without_cache(model)
    spaces = interpress.find_spaces(model, data[:4], progress=False)
    blocks = [Block(tuple(spaces.program.operators()))] if whole else blocks_of(spaces)
    meaning = find_meaning(model, example)
    found = measure_sensitivities(spaces, blocks, [example], meaning, seed=0)
    return spaces, dict(found)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_block_by_block_gives_the_gradients_of_the_whole(name: str) -> None:
    _, by_block = measured(name, count=8)
    _, at_once = measured(name, whole=True, count=8)
    assert by_block.keys() == at_once.keys()
    assert by_block
    for tap, one in by_block.items():
        assert one.rows == at_once[tap].rows
        assert torch.allclose(one.metric(), at_once[tap].metric(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("number", range(4))
def test_a_small_error_causes_the_predicted_divergence(number: int) -> None:
    """Add noise in proportion to one consumer's output; the KL is that of the metric."""
    spaces, found = measured("llama")
    tap = list(found)[number]
    program, node = spaces.program, spaces.taps[tap].sites[0].op.node
    stream = normalised_value(node)
    example = Example((texts(64),)).without_cache(program.model)
    executor = Executor(program, dtype=torch.float64)
    values = executor.record(example)
    sizes = values[node].norm(dim=-1, keepdim=True)
    noise = 1e-3 * sizes * torch.randn(values[node].shape, dtype=torch.float64)
    rows = values[stream].reshape(-1, values[stream].shape[-1])
    weights = found[tap].row_weights
    assert weights is not None
    relative = float((sizes.reshape(-1, 1) * weights.factors(rows)).square().mean())
    frame = executor.frame(example)
    for operator in program.operators():
        executor.advance(frame, [operator])
        if operator is node:
            frame.values[node] = frame.values[node] + noise
    (output,) = program.output_nodes()
    p, q = (outputs[output].log_softmax(-1) for outputs in (values, frame))
    divergence = float((p.exp() * (p - q)).sum(-1).mean())
    predicted = 1e-6 * relative * float(found[tap].metric().trace())
    assert divergence == pytest.approx(predicted, rel=0.25)


def test_classes_are_drawn_by_their_probabilities() -> None:
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    drawn = _draw(p.log().expand(20_000, 4), torch.Generator().manual_seed(0))
    assert torch.allclose(drawn.bincount(minlength=4) / 20_000, p, atol=0.02)


class Convolutional(nn.Module):
    """A causal language model of convolutions."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.table, self.kernel = nn.Embedding(50, 24), kernel
        self.wide, self.back = nn.Conv1d(24, 32, kernel), nn.Conv1d(32, 24, 1)
        self.out = nn.Linear(24, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.table(tokens).transpose(1, 2)
        padded = nn.functional.pad(h, (self.kernel - 1, 0))
        return self.out((h + self.back(nn.functional.gelu(self.wide(padded)))).transpose(1, 2))


@pytest.mark.parametrize("length", [10, 24])  # as many positions as channels hid a wrong dim
def test_gradients_of_a_convolution_are_those_of_its_channels(length: int) -> None:
    torch.manual_seed(0)
    model = Convolutional(3).eval()
    analysis = interpress.analyze(model, torch.randint(0, 50, (60, length)), progress=False)
    sensitivities = analysis.study.statistics.sensitivities
    (tap,) = analysis.spaces["wide"].taps
    assert sensitivities[tap].of_consumer
    assert sensitivities[tap].root.shape[1] == 24  # the channels of `back`, which reads it
    assert analysis.compress(flops=0.7, progress=False).flops <= 0.7

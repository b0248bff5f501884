"""Rows of a residual stream count as much as their gradients say, by their size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.pretrained.models import build, texts
from torch import Tensor

import interpress
from interpress.calibration.backward import measure_sensitivities
from interpress.calibration.row_weights import ClassSums, RowWeights, size_classes
from interpress.calibration.sensitivity import row_weights_of
from interpress.calibration.streamed import blocks_of
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.normalised import inverse_sizes, normalised_value
from interpress.spaces.spaces import Spaces


def _inverse(*sizes: float) -> Tensor:
    return 1 / torch.tensor(sizes)[:, None]


def test_classes_are_powers_of_two() -> None:
    classes = size_classes(_inverse(1.0, 1.3, 2.0, 100.0, 128.0, 1e-30, 1e30))
    assert classes[0] == classes[1] == classes[2] - 1
    assert classes[3] == classes[4] == classes[0] + 7
    assert (int(classes[5]), int(classes[6])) == (0, 63)


def test_a_factor_is_the_root_of_the_weight_over_the_size() -> None:
    weights = torch.ones(64)
    weights[int(size_classes(_inverse(4.0)))] = 9.0
    stream = torch.tensor([[1.0, -1.0], [4.0, 4.0]])
    factors = RowWeights(weights).factors(stream)
    assert torch.allclose(factors, torch.tensor([[1.0], [3 / 4]]))


def test_weights_are_mean_squares_relative_to_the_usual_class() -> None:
    sums = ClassSums()
    sizes = torch.tensor([1.0] * 1000 + [8.0] * 100)[:, None]
    squares = torch.tensor([2.0] * 1000 + [10.0] * 100)
    means = sums.add(squares, 1 / sizes)
    assert torch.allclose(means, squares)
    weights = sums.weights().by_class
    assert sums.usual == 2.0
    assert float(weights[size_classes(_inverse(1.0))]) == pytest.approx(1.0)
    assert float(weights[size_classes(_inverse(8.0))]) == pytest.approx((100 * 5 + 4) / 104)
    assert float(weights[size_classes(_inverse(1e6))]) == 1.0  # a size that did not occur


def test_no_class_outweighs_all_other_rows() -> None:
    sums = ClassSums()
    sums.add(torch.tensor([1.0] * 1000 + [1e9] * 2), 1 / torch.tensor([1.0] * 1000 + [500.0] * 2))
    weights = sums.weights().by_class
    assert float(weights[size_classes(_inverse(500.0))]) == pytest.approx(1002 / 2)


@pytest.fixture(scope="module")
def large_first_token() -> tuple[Spaces, Example]:
    """A language model whose first token is far larger than the others."""
    model: Any = build("llama")
    data = texts(64)
    data[:, 0] = 3
    with torch.no_grad():
        model.model.embed_tokens.weight[3] *= 600
        model.model.layers[1].self_attn.o_proj.weight *= 30  # later tokens depend on earlier ones
    spaces = interpress.find_spaces(model, data[:4], progress=False)
    return spaces, Example((data,)).without_cache(model)


def test_weights_predict_how_much_more_an_error_of_a_large_row_changes(
    large_first_token: tuple[Spaces, Example],
) -> None:
    """The same relative noise is added to the large row or to the ordinary ones."""
    spaces, example = large_first_token
    program = spaces.program
    meaning = find_meaning(program.model, example)
    found = measure_sensitivities(spaces, blocks_of(spaces), [example], meaning, seed=0)
    tap, weights = next(
        (tap, weights) for tap, weights in row_weights_of(found).items() if "mlp" in tap
    )
    node = spaces.taps[tap].sites[0].op.node
    executor = Executor(program, dtype=torch.float64)
    values = executor.record(example)
    stream = values[normalised_value(node)]
    inverse = inverse_sizes(stream.flatten(0, 1)).reshape(*stream.shape[:2], 1)
    noise = 1e-3 * torch.randn(stream.shape, dtype=torch.float64) / inverse
    (output,) = program.output_nodes()

    def divergence(rows: slice) -> float:
        frame = executor.frame(example)
        for operator in program.operators():
            executor.advance(frame, [operator])
            if operator is node:
                frame.values[node] = frame.values[node].clone()
                frame.values[node][:, rows] += noise[:, rows]
        p, q = (outputs[output].log_softmax(-1) for outputs in (values, frame))
        return float((p.exp() * (p - q)).sum())

    factors = weights.factors(stream.flatten(0, 1)).reshape(inverse.shape) / inverse
    predicted = float(factors[:, :1].square().sum() / factors[:, 1:].square().sum())
    measured = divergence(slice(0, 1)) / divergence(slice(1, None))
    assert float(inverse[:, 1:].mean() / inverse[:, :1].mean()) > 10  # it is large
    assert predicted == pytest.approx(measured, rel=0.25)
    assert measured > 1.5 / 8  # eight rows are ordinary: it counts more than one of them


def test_statistics_weigh_rows(large_first_token: tuple[Spaces, Example]) -> None:
    """The Gram matrix of a tap is that of its rows times their factors."""
    spaces, example = large_first_token
    data = example.args[0]
    analysis = interpress.analyze(spaces.program.model, data, progress=False)
    statistics = analysis.study.statistics
    weights = row_weights_of(statistics.sensitivities)
    tap = next(name for name in weights if "mlp" in name)
    node = analysis.spaces.taps[tap].sites[0].op.node
    fitted = torch.cat([b.args[0] for b in analysis.study.require_data().batches("fit")])
    executor = Executor(analysis.spaces.program)
    values = executor.record(Example((fitted,)).without_cache(spaces.program.model))
    stream = values[normalised_value(node)].flatten(0, 1)
    rows = values[node.args[0]].flatten(0, 1) * weights[tap].factors(stream)
    assert torch.allclose(statistics.halves[tap].factor.G, (rows.T @ rows).double(), atol=1e-3)

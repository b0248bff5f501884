"""Dense layers as regressions: `outputs = inputs @ W.T + bias`, row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from interpress.graph.capture import capture
from interpress.graph.dense import DenseLayer, dense_layer_of, sample_rows
from interpress.graph.rows import BatchRows

LAYERS = [
    (nn.Linear(6, 5), (3, 4, 6)),
    (nn.Conv1d(4, 6, 3, padding=2, dilation=2), (3, 4, 9)),
    (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2), (3, 4, 7, 6)),
    (nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), (2, 4, 5, 5)),
    (nn.Conv3d(2, 3, 2, stride=2), (2, 2, 4, 5, 4)),
]


def dense_of(layer: nn.Module, x: torch.Tensor) -> DenseLayer | None:
    program = capture(layer, x)
    (node,) = program.operators()
    return dense_layer_of(program, node, program.parameters())


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_outputs_are_a_linear_function_of_the_inputs(
    layer: Any, shape: tuple[int, ...], sampled: bool
) -> None:
    torch.manual_seed(0)
    layer, x = layer.double(), torch.randn(shape, dtype=torch.float64)
    dense = dense_of(layer, x)
    assert dense is not None
    at = dense.positions(x, 3, BatchRows(len(x))) if sampled else None
    assert (at is not None) == sampled
    rows = dense.inputs(x, at)  # (rows, groups, unknowns)
    expected = dense.outputs(layer(x), at)  # (rows, out)
    assert rows.shape == (len(expected), dense.groups, dense.unknowns)
    W = layer.weight.reshape(dense.groups, -1, dense.unknowns)
    outputs = torch.einsum("rgu,gou->rgo", rows, W).flatten(1)
    outputs = outputs if layer.bias is None else outputs + layer.bias
    torch.testing.assert_close(outputs, expected)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("per_example", [3, 1000])
@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_every_row_is_in_the_half_of_its_example(
    layer: Any, shape: tuple[int, ...], per_example: int, alone: bool
) -> None:
    count = 1 if alone else shape[0]
    x = torch.randn(count, *shape[1:])
    dense = dense_of(layer.float(), x)
    assert dense is not None
    batch = BatchRows(count, first=1, alone=alone)
    at = dense.positions(x, per_example, batch)
    in_second = dense.halves(x, at, batch)
    numbers = torch.arange(count).reshape(-1, *[1] * (x.ndim - 1))
    positions = torch.ones_like(layer(x)).cumsum(-1)  # the last dim has several positions
    if alone:
        every = torch.arange(len(dense.outputs(positions, None)))
        expected = every >= len(every) // 2
        expected = expected if at is None else expected[at]
    else:
        owner = dense.outputs((numbers + torch.zeros_like(positions)), at)[:, 0]
        expected = owner % 2 == 0  # the first example of this batch is number 1
    assert torch.equal(in_second, expected)
    assert len(in_second) == len(dense.inputs(x, at))


@pytest.mark.parametrize("per_example", [4, 1000])
def test_positions_of_a_mask_count(per_example: int) -> None:
    x = torch.randn(3, 4, 9)
    dense = dense_of(nn.Conv1d(4, 6, 3, padding=1), x)
    assert dense is not None
    mask = torch.arange(9) < torch.tensor([2, 9, 5])[:, None]
    batch = BatchRows(3, masks=(mask,))
    at = dense.positions(x, per_example, batch)
    counts = dense.counting(x, at, batch)
    assert counts is not None
    assert torch.equal(counts, dense.outputs(mask[:, None], at)[:, 0])
    assert dense.counting(x, at, BatchRows(3)) is None


def test_patches_of_channels_last_tensors_are_the_same() -> None:
    x = torch.randn(3, 4, 7, 6)
    layer = nn.Conv2d(4, 5, 3, stride=2, padding=1, bias=False)
    dense = dense_of(layer, x)
    assert isinstance(dense, DenseLayer)
    last = x.contiguous(memory_format=torch.channels_last)
    for at in (None, torch.tensor([0, 5, 11])):
        assert torch.equal(dense.inputs(last, at), dense.inputs(x, at))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 4, 3, padding="same"), (2, 3, 5, 5)),
        (nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 5)),
        (nn.LayerNorm(6), (2, 6)),
    ],
)
def test_other_operators_are_not_dense_layers(layer: nn.Module, shape: tuple[int, ...]) -> None:
    assert dense_of(layer, torch.randn(shape)) is None


def test_one_row_is_sampled_from_each_interval() -> None:
    generator = torch.Generator().manual_seed(0)
    assert sample_rows(5, 5, generator) is None
    for rows, limit in ((6, 5), (100, 7), (1000, 16)):
        sample = sample_rows(rows, limit, generator)
        assert sample is not None
        edges = torch.arange(limit + 1) * (rows / limit)
        assert bool((sample >= edges[:-1].long()).all())
        assert bool((sample <= edges[1:]).all())
        assert len(sample) == limit

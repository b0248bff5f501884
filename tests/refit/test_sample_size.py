"""Rows of a regression follow its unknowns."""

from __future__ import annotations

import torch
from torch import nn

from interpress.graph.capture import capture
from interpress.graph.dense import DenseLayer, dense_layer_of
from interpress.refit.sample_size import sample_size


def layer_of(module: nn.Module, *shape: int) -> DenseLayer:
    program = capture(nn.Sequential(module).eval(), torch.randn(*shape))
    layers = [dense_layer_of(program, node, program.parameters()) for node in program.operators()]
    (dense,) = [layer for layer in layers if layer is not None]
    return dense


def test_small_layers_have_many_rows_and_large_ones_more_than_unknowns() -> None:
    assert sample_size(layer_of(nn.Linear(8, 4), 3, 8), False) == 8192
    large = sample_size(layer_of(nn.Linear(3000, 4), 3, 3000), False)
    assert large == 4096 + 3000
    kernel = sample_size(layer_of(nn.Conv2d(400, 4, 3), 3, 400, 5, 5), False)
    assert kernel == 4096 + 1024  # its 3,600 unknowns are solved along 1,024 directions
    assert sample_size(layer_of(nn.Conv2d(8, 8, 3, groups=2), 3, 8, 5, 5), False) == 2048


def test_language_models_use_all_tokens_that_fit() -> None:
    layer = layer_of(nn.Linear(100, 28), 3, 100)
    assert sample_size(layer, True) == 2**28 // 128

"""Programs of one batch size are read for any batch size, where that is right."""

from __future__ import annotations

import pytest
import torch
from tests.exported_programs.networks import (
    BatchStatistics,
    Convolutional,
    Sequence,
    Transformer,
    exported,
)
from torch import Tensor, nn

from interpress import read_exported

CASES = [(Convolutional, (3, 4, 4)), (Transformer, (7, 16)), (Sequence, (5, 6))]


def scores(output: object) -> Tensor:
    result = output["scores"] if isinstance(output, dict) else output
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_other_batch_sizes_are_right(
    kind: type[nn.Module], shape: tuple[int, ...], batch: int
) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    network = read_exported(exported(model, torch.randn(batch, *shape), free=False))
    for size in (1, 3, batch):
        x = torch.randn(size, *shape)
        assert torch.allclose(scores(network(x)), scores(model(x)), atol=1e-5), size


def test_a_program_that_looks_at_its_batch_keeps_its_size() -> None:
    torch.manual_seed(0)
    model, x = BatchStatistics().eval(), torch.randn(4, 6)
    program = exported(model, x, free=False)
    network = read_exported(program)
    assert network.code == program.module(check_guards=False).code
    assert torch.allclose(network(x), model(x))


def test_a_free_batch_size_needs_no_change() -> None:
    program = exported(Convolutional(), torch.randn(4, 3, 4, 4))
    assert read_exported(program).code == program.module(check_guards=False).code

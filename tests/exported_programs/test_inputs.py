"""Free sizes of the inputs, and inputs to try."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim, export

from interpress.exported_programs.inputs import free_sizes, random_inputs, sizes_to_try


class Two(nn.Module):
    def forward(self, x: Tensor, scale: float, *, ids: Tensor) -> Tensor:
        return x.sum((1, 2)) * scale + ids.sum(1)


def test_inputs_have_the_sizes_and_structure_of_the_call() -> None:
    length = Dim("length", min=3, max=9)
    program = export(
        Two(), (torch.randn(5, 4, 6), 2.0), {"ids": torch.zeros(5, 4, dtype=torch.long)},
        dynamic_shapes={"x": {0: Dim.AUTO, 1: length}, "scale": None,
                        "ids": {0: Dim.AUTO, 1: length}},
        strict=False,
    )  # fmt: skip
    sizes = sizes_to_try(program)
    example = random_inputs(program, sizes)
    x, scale = example.args
    ids = example.kwargs["ids"]
    assert scale == 2.0
    assert x.shape[:2] == ids.shape
    assert x.shape[2] == 6
    assert 3 <= x.shape[1] <= 9
    assert x.shape[0] != x.shape[1]
    assert set(ids.unique().tolist()) <= {0, 1}
    assert torch.equal(x, random_inputs(program, sizes).args[0])
    assert not torch.equal(x, random_inputs(program, sizes, seed=1).args[0])
    free = free_sizes(program)
    assert sorted(free.args[0]) == sorted(free.kwargs["ids"]) == [0, 1]
    assert free.args[1] is None
    assert "max=9" in str(free.args[0][1])
    assert "min=3" in str(free.args[0][1])

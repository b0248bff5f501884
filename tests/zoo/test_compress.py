"""`compress` on different architectures: the budget is met, as PyTorch counts FLOPs."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.checks import counted_flops
from tests.zoo.members import build

from interpress import compress
from interpress.graph.example import Example

MEMBERS = [
    "vgg", "mobilenet_v1", "resnet18", "preact_resnet", "resnext", "densenet", "shufflenet_v2",
    "unet", "vit", "bert", "llama", "gated_mlp", "einsum_attention", "in_place", "two_inputs",
]  # fmt: skip


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_every_kind_of_network_is_compressed(name: str) -> None:
    torch.manual_seed(0)
    model, example = build(name)
    torch.manual_seed(1)
    batch = Example.of(example).map(lambda t: torch.cat([t] * 8) if t.ndim else t)
    batch = batch.map(lambda t: torch.randn_like(t) if t.is_floating_point() else t)
    result = compress(model, batch, flops=0.75)
    assert 0.6 < result.flops <= 0.75
    assert result.network.refit is not None
    assert result.network.refit.skipped is None
    share = counted_flops(result.model, batch) / counted_flops(model, batch)
    assert share == pytest.approx(result.flops, rel=0.02)

"""`compress` on very different architectures: the budget is met, the counter agrees, it runs."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.checks import counted_flops
from tests.zoo.members import build

from interpress import analyze, compress
from interpress.graph.example import Example
from interpress.selection.registry import selections

BASELINES = ("random", "l1", "l2", "soft", "fpgm", "bn-scale", "thinet", "hrank", "pfp")

MEMBERS = [
    "vgg", "mobilenet_v1", "resnet18", "preact_resnet", "resnext", "densenet", "shufflenet_v2",
    "unet", "vit", "bert", "llama", "gated_mlp", "einsum_attention", "in_place", "two_inputs",
]  # fmt: skip


@pytest.mark.parametrize("name", ["depth_multiplier", "shufflenet_v1", "preact_resnet", "vit"])
def test_baselines_order_the_units_of_every_kind_of_space(name: str) -> None:
    """Units that are several channels, several producers, heads."""
    torch.manual_seed(0)
    model, example = build(name)
    analysis = analyze(model, [example], patches=False)
    for profile in analysis._knowledge.profiles.values():
        for label in BASELINES:
            chosen = selections()[label](profile)
            assert sorted(chosen.units.tolist()) == list(range(profile.space.size)), label
            assert chosen.proxy.shape == (profile.space.size + 1,), label


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
    assert result.built.refit is not None
    assert result.built.refit.skipped is None
    share = counted_flops(result.model, batch) / counted_flops(model, batch)
    assert share == pytest.approx(result.flops, rel=0.02)

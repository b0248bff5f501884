"""Spaces that a call keeps whole have a reason and a remedy of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import interpress


def vit() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=24, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_labels=3,
    )  # fmt: skip
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model


IMAGES = {"pixel_values": torch.randn(40, 3, 16, 16, generator=torch.Generator().manual_seed(0))}


def test_heads_that_the_config_cannot_say() -> None:
    result = interpress.compress(vit(), IMAGES, flops=0.85, same_widths=True, progress=False)
    (heads,) = [space for space in result.spaces if space.heads]
    assert heads.frozen == "the config has one head size, so same_widths keeps all heads"
    assert heads.remedy is not None
    assert "leave same_widths out" in heads.remedy
    assert "kept by same_widths" in result.summary()
    assert "unequal" not in result.summary()


def test_heads_shrink_without_same_widths() -> None:
    result = interpress.compress(vit(), IMAGES, flops=0.85, progress=False)
    (heads,) = [space for space in result.spaces if space.heads]
    assert heads.frozen is None


def test_dims_inside_heads_that_two_layers_read() -> None:
    result = interpress.compress(vit(), IMAGES, flops=0.85, progress=False)
    frozen = [space for space in result.spaces.frozen if space.name.endswith("k_proj")]
    assert [space.frozen for space in frozen] == [
        "no layer reads all of its channels, so calibration cannot measure it"
    ]
    assert frozen[0].remedy == (
        "nothing to do for the dims inside heads; whole heads can shrink instead"
    )


def test_a_budget_below_the_floor_of_same_widths_counts_spaces() -> None:
    counts = r"\(1 space can shrink, \d stay whole\); ask for at least 0\.\d+"
    with pytest.raises(interpress.ArgumentError, match=counts):
        interpress.compress(vit(), IMAGES, flops=0.05, same_widths=True, progress=False)

"""Cases on which Torch-Pruning 1.6.1 fails, as the name of each test says; interpress must pass.

Small networks of the same structure run everywhere. If torchvision is installed, its networks run
too.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from tests.zoo import attention, classic, odd, residual
from tests.zoo.checks import difference, halved, interpolations, plant
from tests.zoo.maxvit import MaxViT
from tests.zoo.members import ZOO
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.graph.model_state import output_tensors
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink

IMAGE = torch.randn(2, 3, 32, 32)


def halve(model: nn.Module, x: Tensor) -> tuple[Spaces, dict[str, Tensor], nn.Module]:
    """Return the spaces, and the model with half of every shrinkable space, proved."""
    spaces = find_spaces(model, x)
    kept = {space.name: halved(space, seed=i) for i, space in enumerate(spaces.shrinkable)}
    T = random_interpolations(Cut(spaces, kept))
    small = shrink(spaces, kept, T)
    assert prove(spaces, Cut(spaces, kept, T), small)
    assert all(space.frozen for space in spaces if space not in spaces.shrinkable)
    return spaces, kept, small


@pytest.mark.parametrize(
    "build", [lambda: attention.Swin(32), lambda: MaxViT(32)], ids=["swin", "maxvit"]
)
def test_no_result_in_100_seconds(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    spaces, kept, _ = halve(build(), IMAGE)
    assert spaces.cost({k: len(v) for k, v in kept.items()}).flops < 0.7 * spaces.cost().flops
    assert any(space.heads for space in spaces.shrinkable)


def test_zero_division_on_shufflenet() -> None:
    spaces, kept, _ = halve(residual.ShuffleNetV2(), IMAGE)
    assert len(kept) >= 6
    assert spaces.cost({k: len(v) for k, v in kept.items()}).flops < 0.7 * spaces.cost().flops


def test_forward_fails_after_pruning_a_vit_with_fused_qkv() -> None:
    spaces, kept, small = halve(attention.ViT(32), IMAGE)
    assert small(IMAGE).shape == (2, 10)
    assert (
        small.blocks[0].attn.qkv.out_features < spaces.program.model.blocks[0].attn.qkv.out_features
    )
    assert {"blocks.0.attn.qkv", "blocks.0.attn.qkv:heads", "blocks.0.mlp.0"} <= kept.keys()


def test_index_error_on_pixel_shuffle() -> None:
    _, kept, small = halve(classic.ESPCN(), torch.randn(2, 1, 8, 8))
    assert len(kept["conv2"]) == 3
    assert small.conv2.out_channels == 12


def test_silent_no_op_without_gradients() -> None:
    model = classic.VGG().requires_grad_(False)
    _, kept, small = halve(model, IMAGE)
    assert len(kept) == 7
    assert small.features[0].out_channels == 4
    assert not any(parameter.requires_grad for parameter in small.parameters())


def test_chunk_gated_depthwise_network_at_half_lost_more_than_half() -> None:
    _, kept, small = halve(odd.GatedDepthwise(), torch.randn(2, 8, 8, 8))
    assert len(kept["project_in"]) == 16  # of 32 pairs: 64 -> 32 channels, not 8
    assert small.project_in.out_channels == small.dwconv.groups == 32
    assert small.project_out.in_channels == 16


def test_save_and_load_under_weights_only() -> None:
    model = residual.ResNet(residual.BasicBlock, (2, 2))
    spaces, kept, small = halve(model, IMAGE)
    buffer = io.BytesIO()
    torch.save(small.state_dict(), buffer)
    buffer.seek(0)
    rebuilt = shrink(spaces, kept)  # the same widths, from the original
    rebuilt.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(
        output_tensors(rebuilt, spaces.program.example)[0],
        output_tensors(small, spaces.program.example)[0],
    )


def test_no_test_that_outputs_stay_right() -> None:
    """Every architecture of the zoo is checked for it; here one, end to end."""
    assert len(ZOO) >= 40
    torch.manual_seed(0)
    model = residual.ResNet(residual.Bottleneck, (2, 2), 6).double()
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    spaces = find_spaces(model, x)
    kept = {space.name: halved(space, seed=i) for i, space in enumerate(spaces.shrinkable)}
    plant(spaces, kept)
    original = copy.deepcopy(model)
    small = shrink(spaces, kept, interpolations(spaces, Cut(spaces, kept)))
    assert difference(small, original, x) < 1e-9


@pytest.mark.parametrize("name", ["swin_t", "maxvit_t", "shufflenet_v2_x1_0", "vit_b_16"])
def test_the_very_networks(name: str) -> None:
    try:
        import torchvision
    except Exception as problem:  # an installed torchvision may not fit the installed torch
        pytest.skip(f"torchvision cannot be imported: {problem}")
    spaces, kept, _ = halve(getattr(torchvision.models, name)(), torch.randn(2, 3, 224, 224))
    assert spaces.cost({k: len(v) for k, v in kept.items()}).flops < 0.7 * spaces.cost().flops

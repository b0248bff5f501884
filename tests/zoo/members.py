"""The networks of the zoo: how to build one, its inputs, and the spaces that must be shrinkable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tests.zoo import attention, classic, dense_prediction, detection, detectors, odd, residual
from tests.zoo.maxvit import MaxViT
from torch import Tensor, nn


@dataclass(frozen=True)
class Member:
    """A network of the zoo. `widths` names spaces that must be shrinkable, with their sizes."""

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    widths: dict[str, int]
    frozen: tuple[str, ...] = ()
    """Texts that must occur in the reasons of frozen spaces."""
    dtype: torch.dtype = torch.float64


def images(size: int = 16, channels: int = 3, batch: int = 3) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, channels, size, size)


def numbers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def tokens(*names: str, length: int = 7) -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: torch.randint(0, 50, (3, length)) for name in names}


def grad_free(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: build().requires_grad_(False)


R, D, P = residual, detectors, dense_prediction
BASIC, DEEP = R.BasicBlock, R.Bottleneck

ZOO: dict[str, Member] = {
    "mlp": Member(classic.MLP, numbers(8, 12), {"0": 24, "2": 20}),
    "lenet": Member(classic.LeNet, images(16, 1), {"conv1": 6, "conv2": 16, "fc1": 30, "fc2": 24}),
    "vgg": Member(classic.VGG, images(), {"features.0": 8, "features.17": 16, "classifier.0": 20}),
    "mobilenet_v1": Member(R.MobileNetV1, images(), {"features.0.0": 8, "features.4.0": 12}),
    "depth_multiplier": Member(
        lambda: R.MobileNetV1(2), images(), {"features.0.0": 8, "features.4.0": 12}
    ),
    "mobilenet_v2": Member(
        lambda: R.Inverted(nn.ReLU6, False),
        images(),
        {"features.3.body.0.0": 24, "features.0.0": 8},
    ),
    "mobilenet_v3": Member(
        lambda: R.Inverted(nn.Hardswish, True),
        images(),
        {"features.3.body.0.0": 24, "features.3.body.4.down": 6},
    ),
    "efficientnet": Member(
        lambda: R.Inverted(nn.SiLU, True), images(), {"features.5.body.0.0": 36, "features.7.0": 24}
    ),
    "resnet18": Member(
        lambda: R.ResNet(BASIC, (2, 2)),
        images(),
        {"stem.0": 8, "layers.0.body.0.0": 8, "layers.2.body.2.0": 16},
    ),
    "resnet50": Member(
        lambda: R.ResNet(DEEP, (2, 2), 6),
        images(),
        {"layers.0.conv3.0": 24, "layers.2.conv1.0": 12},
    ),
    "resnet56": Member(
        lambda: R.ResNet(BASIC, (3, 3, 3), 6), images(), {"stem.0": 6, "layers.8.body.0.0": 24}
    ),
    "resnet56_padded": Member(
        lambda: R.ResNet(BASIC, (3, 3, 3), 6, skip="pad"),
        images(),
        {"stem.0": 6, "layers.8.body.0.0": 24},
    ),
    "preact_resnet": Member(R.PreActResNet, images(), {"stem": 8, "blocks.1.conv2": 12}),
    "resnext": Member(
        lambda: R.ResNet(DEEP, (1, 1), 8, groups=4, base=64),
        images(8),
        {"layers.0.conv1.0": 32, "layers.0.conv2.0": 32, "layers.0.conv3.0": 32},
    ),
    "se_resnet": Member(
        lambda: R.ResNet(DEEP, (1, 1), 6, se=5),
        images(8),
        {"layers.0.se.down": 5, "layers.0.conv3.0": 24},
    ),
    "regnet": Member(
        lambda: R.ResNet(DEEP, (1, 2), 8, groups=2, base=32, se=4),
        images(8),
        {"layers.1.conv1.0": 16, "layers.1.se.down": 4},
    ),
    "densenet": Member(
        classic.DenseNet, images(), {"stem.0": 8, "blocks.0.0.conv2": 4, "blocks.1.2.conv1": 16}
    ),
    "inception": Member(
        classic.Inception, images(8), {"stem": 8, "first.three.0": 4, "second.one": 6}
    ),
    "squeezenet": Member(
        classic.SqueezeNet, images(), {"stem": 8, "fires.0.expand1": 6, "fires.2.squeeze": 5}
    ),
    "shufflenet_v1": Member(R.ShuffleNetV1, images(8), {"stem.0": 16, "squeeze.0": 8}),
    "shufflenet_v2": Member(
        R.ShuffleNetV2, images(), {"stem.0": 8, "units.0.right.0.0": 12, "units.2.right.0.0": 12}
    ),
    "convnext": Member(
        R.ConvNeXt,
        images(8),
        {"blocks.0.up": 32, "blocks.1.up": 32},
        ("couples its channels (LayerNorm)",),
    ),
    "unet": Member(
        classic.UNet, images(), {"down1.3": 6, "up2": 10, "merge2.3": 8, "middle.0": 12}
    ),
    "yolo": Member(
        lambda: D.YOLOv8(4, (1, 1), classes=3, bins=4, most=16),
        images(96),
        {"c3.cv1.conv": 16, "sppf.cv1.conv": 8, "up4.cv1.conv": 16, "head.cv3.0.1.conv": 16},
        ("it is an output of the model", "aten.softmax at head.dfl mixes its channels"),
    ),
    "c2f_split": Member(
        lambda: D.Blocks(D.C2fSplit(8, 12, 2), 8, 12), images(8), {"block.cv1.conv": 12}
    ),
    "c2f_slice": Member(
        lambda: D.Blocks(D.C2fSlice(8, 12, 1), 8, 12), images(8), {"block.cv1.conv": 12}
    ),
    "c3k2": Member(
        lambda: D.Blocks(D.C3k2(8, 16), 8, 16),
        images(8),
        {"block.cv1.conv": 16, "block.m.0.cv1.conv": 4, "block.m.0.cv2.conv": 4},
    ),
    "spp": Member(
        lambda: D.Blocks(nn.Sequential(D.SPPF(8, 8), D.SPPELAN(8, 12, 6)), 8, 12),
        images(8),
        {"block.0.cv1.conv": 4, "block.1.cv1.conv": 6},
    ),
    "c2psa": Member(
        lambda: D.Blocks(D.C2PSA(16, 2), 16, 16),
        images(8),
        {"block.ffn.0.conv": 16},
    ),
    "fpn": Member(P.FPN, images(16), {"stages.0.conv": 6, "lateral.0": 8, "smooth.0": 8}),
    "aspp": Member(P.ASPP, images(16), {"stem.conv": 8, "branches.1.0": 6, "pooled.1": 6}),
    "detr": Member(
        P.DETR,
        images(16),
        {"backbone.0.conv": 8, "encoder.attn.k:heads": 2, "encoder.up": 24, "box.0": 20},
        ("(LayerNorm)",),
    ),
    "espcn": Member(classic.ESPCN, images(8, 1), {"conv1": 8, "conv2": 6, "conv3": 8}),
    "audio": Member(
        classic.Audio, numbers(3, 1, 80), {"conv1": 8, "conv2": 12, "conv4": 10}, ("(GroupNorm)",)
    ),
    "voxels": Member(
        classic.Voxels,
        numbers(3, 5, 12, 12, 12),
        {"conv.0": 8, "conv.2": 12, "conv.5": 16, "fc.1": 20},
    ),
    "autoencoder": Member(
        classic.AutoEncoder,
        images(16, 1),
        {"encoder.0": 8, "encoder.2": 12, "decoder.0": 12, "decoder.3": 8, "decoder.6": 6},
    ),
    "mixer": Member(
        attention.Mixer,
        images(),
        {"blocks.0.tokens.0": 10, "blocks.1.channels.0": 20},
        ("(LayerNorm)",),
    ),
    "vit": Member(
        attention.ViT,
        images(),
        {"blocks.0.attn.qkv": 48, "blocks.1.attn.qkv:heads": 3, "blocks.0.mlp.0": 96},
        ("(LayerNorm)",),
    ),
    "swin": Member(
        attention.Swin,
        images(),
        {"stages.0.attn.qkv:heads": 2, "stages.1.attn.qkv": 16, "stages.4.mlp.0": 64},
        ("(LayerNorm)",),
    ),
    "maxvit": Member(
        MaxViT,
        images(16),
        {"layers.0.body.0.0": 32, "layers.2.attn.qkv:heads": 4, "layers.1.mlp.0": 64},
        ("(LayerNorm)",),
    ),
    "einsum_attention": Member(
        attention.EinsumAttention, numbers(3, 5, 16), {"k": 16, "v": 16, "k:heads": 4}
    ),
    "bert": Member(
        lambda: attention.huggingface("bert"),
        tokens("input_ids", "attention_mask"),
        {
            "bert.encoder.layer.0.attention.self.key": 48,  # with the values: one number for both
            "bert.encoder.layer.0.attention.self.key:heads": 3,
            "bert.encoder.layer.1.intermediate.dense": 40,
        },
        ("(LayerNorm)",),
    ),
    "gpt2": Member(
        lambda: attention.huggingface("gpt2"),
        tokens("input_ids"),
        {"transformer.h.0.attn.c_attn:heads": 3, "transformer.h.1.mlp.c_fc": 96},
        ("(LayerNorm)",),
    ),
    "t5": Member(
        lambda: attention.huggingface("t5"),
        tokens("input_ids", "decoder_input_ids"),
        {
            "encoder.block.0.layer.0.SelfAttention.k": 48,
            "encoder.block.0.layer.0.SelfAttention.k:heads": 3,  # of all layers: they share a bias
            "decoder.block.1.layer.1.EncDecAttention.k": 48,
            "encoder.block.0.layer.1.DenseReluDense.wi_0": 40,
        },
        ("mixes its channels",),
    ),
    "llama": Member(
        lambda: attention.huggingface("llama"),
        tokens("input_ids"),
        {
            "model.layers.0.self_attn.q_proj:heads": 2,
            "model.layers.0.self_attn.q_proj:heads-per-group": 4,
            "model.layers.1.mlp.gate_proj": 40,
        },
        ("mixes its channels",),
    ),
    "qwen3": Member(
        lambda: attention.huggingface("qwen3"),
        tokens("input_ids"),
        {
            "model.layers.0.self_attn.q_proj:heads": 2,
            "model.layers.0.self_attn.q_proj:heads-per-group": 4,
            "model.layers.1.mlp.gate_proj": 40,
        },
        ("mixes its channels",),
    ),
    "gated_depthwise": Member(odd.GatedDepthwise, images(8, 8), {"project_in": 32}),
    "gated_mlp": Member(
        odd.Gated, numbers(3, 5, 9), {"gate": 20, "both": 16, "glu.0": 12}, ("(RMSNorm)",)
    ),
    "shared_weights": Member(
        odd.SharedWeights, numbers(6, 10), {"first": 16}, ("both makes and reads it",)
    ),
    "called_twice": Member(odd.CalledTwice, numbers(6, 6), {"stem": 12, "block.0": 18}),
    "two_inputs": Member(
        odd.TwoInputs,
        lambda: {"image": torch.randn(3, 3, 8, 8), "numbers": torch.randn(3, 5)},
        {"image": 8, "numbers": 8, "joint": 20},
    ),
    "bare_parameters": Member(odd.BareParameters, numbers(6, 8), {"w1": 15, "w2": 11}),
    "frozen_parameters": Member(
        grad_free(classic.VGG), images(), {"features.0": 8, "classifier.0": 20}
    ),
    "in_place": Member(odd.InPlace, images(8), {"a": 8}),
    "bfloat16": Member(
        classic.VGG, images(), {"features.0": 8, "classifier.0": 20}, dtype=torch.bfloat16
    ),
    "recurrent": Member(
        odd.Recurrent, numbers(3, 5, 6), {"embed.0": 14, "head.0": 16}, ("aten.lstm", "aten.gru")
    ),
    "frozen_batch_norms": Member(
        detection.Pyramid, images(), {"one.0": 8, "one.3": 8, "two.0": 12, "inner.0": 6}
    ),
    "caches_a_weight": Member(odd.CachesBias, images(8), {"v": 12, "out": 10}),
    "unknown_operator": Member(odd.Unknown, numbers(3, 6), {"b": 12}, ("aten.linalg_det",)),
}


def build(name: str) -> tuple[nn.Module, Any]:
    """Return the network with random weights and statistics, and an example for it."""
    torch.manual_seed(sum(map(ord, name)))
    member = ZOO[name]
    model = member.build()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            with torch.no_grad():
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)
    example = member.example()
    return model.to(member.dtype), as_type(example, member.dtype)


def as_type(example: Any, dtype: torch.dtype) -> Any:
    if isinstance(example, dict):
        return {name: as_type(value, dtype) for name, value in example.items()}
    return example.to(dtype) if example.is_floating_point() else example

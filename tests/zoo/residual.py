"""Networks with residual streams: ResNets of all kinds, MobileNets, EfficientNet, ShuffleNet."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_norm(a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(b)
    )


class SqueezeExcite(nn.Module):
    def __init__(
        self, width: int, inner: int, gate: Callable[[Tensor], Tensor] = torch.sigmoid
    ) -> None:
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, a: int, b: int, stride: int = 1, skip: str = "conv", **_: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(a, b, 3, stride), nn.ReLU(inplace=True), conv_norm(b, b)
        )
        self.skip, self.stride, self.added = skip, stride, b - a
        self.project = (
            conv_norm(a, b, 1, stride) if skip == "conv" and (stride > 1 or a != b) else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        if self.project is not None:
            x = self.project(x)
        elif self.stride > 1:  # no parameters: every other pixel, and zeros for the new channels
            front = self.added // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, front, self.added - front))
        y += x
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(
        self,
        a: int,
        b: int,
        stride: int = 1,
        groups: int = 1,
        base: int = 64,
        se: int = 0,
        **_: str,
    ) -> None:
        super().__init__()
        inner = int(b * base / 64) * groups
        self.conv1, self.conv2 = conv_norm(a, inner, 1), conv_norm(inner, inner, 3, stride, groups)
        self.conv3 = conv_norm(inner, b * 4, 1)
        self.se = SqueezeExcite(b * 4, se) if se else nn.Identity()
        self.project = conv_norm(a, b * 4, 1, stride) if stride > 1 or a != b * 4 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv1(x))
        y = self.se(self.conv3(F.relu(self.conv2(y))))
        return F.relu(y + self.project(x))


class ResNet(nn.Module):
    def __init__(
        self,
        block,
        blocks: tuple[int, ...],
        width: int = 8,
        classes: int = 10,
        *,
        stem: str = "small",
        **options,
    ) -> None:
        super().__init__()
        large = stem == "large"
        self.stem = conv_norm(3, width, 7 if large else 3, 2 if large else 1)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.layers = nn.ModuleList()
        a, b = width, width
        for stage, count in enumerate(blocks):
            for index in range(count):
                stride = 2 if stage and index == 0 else 1
                self.layers.append(block(a, b, stride=stride, **options))
                a = b * block.expansion
            b *= 2
        self.head = nn.Linear(a, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.stem(x)))
        for layer in self.layers:
            x = layer(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class PreActBlock(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(a), nn.Conv2d(a, b, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(b), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.project = nn.Conv2d(a, b, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(x))
        skip = x if self.project is None else self.project(y)
        return skip + self.conv2(F.relu(self.norm2(self.conv1(y))))


class PreActResNet(nn.Module):
    """Reads its stream raw (in the head's first convolution) and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(
            PreActBlock(8, 8, 1), PreActBlock(8, 12, 2), PreActBlock(12, 12, 1)
        )
        self.raw, self.norm, self.head = nn.Conv2d(12, 6, 1), nn.BatchNorm2d(12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.blocks(self.stem(x))
        return self.head(F.relu(self.norm(x)).mean((-1, -2))), self.raw(x)


class MobileNetV1(nn.Module):
    def __init__(self, multiplier: int = 1) -> None:
        super().__init__()
        layers = [conv_norm(3, 8), nn.ReLU()]
        a = 8
        for b, stride in ((12, 1), (16, 2), (16, 1), (24, 2)):
            layers += [conv_norm(a, a * multiplier, 3, stride, a), nn.ReLU()]
            layers += [conv_norm(a * multiplier, b, 1), nn.ReLU()]
            a = b
        self.features, self.pool, self.classifier = (
            nn.Sequential(*layers),
            nn.AdaptiveAvgPool2d(1),
            nn.Linear(24, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class InvertedResidual(nn.Module):
    def __init__(
        self, a: int, b: int, expand: int, stride: int, act: type[nn.Module], se: bool
    ) -> None:
        super().__init__()
        inner = a * expand
        gate = F.hardsigmoid if act is nn.Hardswish else torch.sigmoid
        self.body = nn.Sequential(
            conv_norm(a, inner, 1), act(), conv_norm(inner, inner, 3, stride, inner), act(),
            SqueezeExcite(inner, max(2, inner // 4), gate) if se else nn.Identity(),
            conv_norm(inner, b, 1),
        )  # fmt: skip
        self.residual = stride == 1 and a == b

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class Inverted(nn.Module):
    """MobileNet V2 (ReLU6), V3 (hard-swish, squeeze-excite) and EfficientNet (SiLU)."""

    def __init__(self, act: type[nn.Module], se: bool) -> None:
        super().__init__()
        rows = ((8, 1, 1), (8, 3, 1), (12, 2, 2), (12, 3, 1), (16, 2, 2))
        layers: list[nn.Module] = [conv_norm(3, 8, 3, 2), act()]
        a = 8
        for b, expand, stride in rows:
            layers.append(InvertedResidual(a, b, expand, stride, act, se))
            a = b
        self.features = nn.Sequential(*layers, conv_norm(a, 24, 1), act())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(24, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def shuffle(x: Tensor, groups: int) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        half = b // 2
        self.stride = stride
        inner = a if stride > 1 else a // 2
        self.left = (
            nn.Sequential(conv_norm(a, a, 3, 2, a), conv_norm(a, half, 1), nn.ReLU())
            if stride > 1
            else None
        )
        self.right = nn.Sequential(
            conv_norm(inner, half, 1),
            nn.ReLU(),
            conv_norm(half, half, 3, stride, half),
            conv_norm(half, half, 1),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.left is not None:
            y = torch.cat((self.left(x), self.right(x)), 1)
        else:
            a, b = x.chunk(2, dim=1)
            y = torch.cat((a, self.right(b)), 1)
        return shuffle(y, 2)


class ShuffleNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 8)
        self.units = nn.Sequential(
            ShuffleUnit(8, 24, 2), ShuffleUnit(24, 24, 1), ShuffleUnit(24, 24, 1)
        )
        self.last, self.head = conv_norm(24, 20, 1), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.last(self.units(F.relu(self.stem(x)))))
        return self.head(x.mean([2, 3]))


class ShuffleNetV1(nn.Module):
    """Grouped 1x1 convolutions with a channel shuffle between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 16)
        self.squeeze, self.depth = conv_norm(16, 16, 1, groups=2), conv_norm(16, 16, groups=16)
        self.expand, self.head = conv_norm(16, 16, 1, groups=2), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        y = shuffle(F.relu(self.squeeze(x)), 2)
        x = F.relu(x + self.expand(self.depth(y)))
        return self.head(x.mean((2, 3)))


class ConvNeXt(nn.Module):
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.dwconv, self.norm = (
                nn.Conv2d(width, width, 7, padding=3, groups=width),
                nn.LayerNorm(width),
            )
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gamma = nn.Parameter(torch.full((width,), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
            y = self.gamma * self.down(F.gelu(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, 2)
        self.blocks = nn.Sequential(self.Block(8), self.Block(8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x)).mean((-2, -1))))

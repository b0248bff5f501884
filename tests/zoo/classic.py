"""Plain convolutional and fully connected networks, from LeNet to U-Net."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 20), nn.BatchNorm1d(20), nn.Tanh(),
            nn.Dropout(0.1), nn.Linear(20, 5),
        )  # fmt: skip


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 4, 30), nn.Linear(30, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class VGG(nn.Module):
    """Convolution, batch norm, ReLU and pooling; `plan` lists widths and `M` for a pool."""

    def __init__(
        self, plan: str = "8 8 M 12 12 M 16 16 M", hidden: int = 20, classes: int = 10
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 3
        for item in plan.split():
            if item == "M":
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(width, int(item), 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(int(item)), nn.ReLU(inplace=True)]
            width = int(item)
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(
            nn.Linear(width * 4, hidden), nn.ReLU(True), nn.Dropout(), nn.Linear(hidden, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)).flatten(1))


class Inception(nn.Module):
    """Four branches of different depth, concatenated twice."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one = nn.Conv2d(width, 6, 1)
            self.three = nn.Sequential(
                nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1)
            )
            self.five = nn.Sequential(
                nn.Conv2d(width, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 5, padding=2)
            )
            self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(width, 4, 1))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1))

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first, self.second = self.Block(8), self.Block(22)
        self.head = nn.Linear(22, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(F.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


class SqueezeNet(nn.Module):
    class Fire(nn.Module):
        def __init__(self, width: int, squeeze: int, expand: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(width, squeeze, 1)
            self.expand1 = nn.Conv2d(squeeze, expand, 1)
            self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.squeeze(x))
            return torch.cat([F.relu(self.expand1(x)), F.relu(self.expand3(x))], 1)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.fires = nn.Sequential(self.Fire(8, 4, 6), nn.MaxPool2d(2), self.Fire(12, 5, 8))
        self.head = nn.Conv2d(16, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fires(F.relu(self.stem(x)))
        return F.adaptive_avg_pool2d(F.relu(self.head(x)), 1).flatten(1)


class DenseNet(nn.Module):
    """Dense blocks: every layer reads the concatenation of all before it, batch norm first."""

    class Layer(nn.Module):
        def __init__(self, width: int, growth: int) -> None:
            super().__init__()
            self.norm1, self.conv1 = (
                nn.BatchNorm2d(width),
                nn.Conv2d(width, 4 * growth, 1, bias=False),
            )
            self.norm2 = nn.BatchNorm2d(4 * growth)
            self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

        def forward(self, parts: list[Tensor]) -> Tensor:
            x = self.conv1(F.relu(self.norm1(torch.cat(parts, 1))))
            return self.conv2(F.relu(self.norm2(x)))

    def __init__(
        self,
        blocks: tuple[int, ...] = (2, 3),
        growth: int = 4,
        stem: int = 8,
        classes: int = 6,
        patch: bool = False,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 7 if patch else 3, 2 if patch else 1, 3 if patch else 1, bias=False),
            nn.BatchNorm2d(stem), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        width = stem
        for index, count in enumerate(blocks):
            self.blocks.append(
                nn.ModuleList(self.Layer(width + i * growth, growth) for i in range(count))
            )
            width += count * growth
            if index + 1 < len(blocks):
                self.transitions.append(
                    nn.Sequential(
                        nn.BatchNorm2d(width),
                        nn.ReLU(),
                        nn.Conv2d(width, width // 2, 1, bias=False),
                        nn.AvgPool2d(2),
                    )
                )
                width //= 2
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            parts = [x]
            for layer in block:
                parts.append(layer(parts))
            x = torch.cat(parts, 1)
            if index < len(self.transitions):
                x = self.transitions[index](x)
        return self.head(F.adaptive_avg_pool2d(F.relu(self.norm(x)), 1).flatten(1))


class UNet(nn.Module):
    """Skips are concatenated; the way up is a transposed convolution and a resize."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self.pair(3, 6), self.pair(6, 10)
        self.middle = self.pair(10, 12)
        self.up2, self.merge2 = nn.ConvTranspose2d(12, 10, 2, stride=2), self.pair(20, 8)
        self.merge1 = self.pair(14, 6)
        self.head = nn.Conv2d(6, 2, 1)

    @staticmethod
    def pair(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True),
            nn.Conv2d(b, b, 3, padding=1), nn.LeakyReLU(0.1, True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        y = self.merge2(torch.cat([b, self.up2(c)], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return {"mask": self.head(self.merge1(torch.cat([a, y], 1)))}


class ESPCN(nn.Module):
    """Super-resolution: pixel shuffle in the middle and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 24, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)
        self.conv3, self.conv4 = nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.shuffle(self.conv2(torch.tanh(self.conv1(x)))))
        return self.shuffle(self.conv4(F.relu(self.conv3(x))))


class Audio(nn.Module):
    """Conv1d with a GroupNorm of one group per channel, one of two, and an instance norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(1, 8, 9, stride=2), nn.BatchNorm1d(8)
        self.conv2, self.norm2 = nn.Conv1d(8, 12, 3, dilation=2), nn.GroupNorm(12, 12)
        self.conv3, self.norm3 = nn.Conv1d(12, 8, 3), nn.GroupNorm(2, 8)
        self.conv4, self.norm4 = nn.Conv1d(8, 10, 3), nn.InstanceNorm1d(10, affine=True)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool1d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.elu(self.norm2(self.conv2(x)))
        x = F.elu(self.norm3(self.conv3(x)))
        x = F.relu(self.norm4(self.conv4(x)))
        return self.head(x.amax(-1))


class Voxels(nn.Module):
    """The shape of the ATOM3D 3D-CNN: Conv3d, ReLU, max-pool, then linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv3d(5, 8, 3), nn.ReLU(), nn.Conv3d(8, 12, 3), nn.ReLU(), nn.MaxPool3d(2),
            nn.Conv3d(12, 16, 3), nn.ReLU(),
        )  # fmt: skip
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(16 * 8, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x)).view(-1)


class AutoEncoder(nn.Module):
    """A bottleneck vector, unflattened, and transposed convolutions, one of them grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.PReLU(8), nn.Conv2d(8, 12, 3, 2, 1), nn.PReLU(),
            nn.Flatten(),
            nn.Linear(12 * 16, 9),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(9, 12 * 16), nn.ReLU(), nn.Unflatten(1, (12, 4, 4)),
            nn.ConvTranspose2d(12, 8, 2, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
            nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2), nn.ReLU(),
            nn.ConvTranspose2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        code = self.encoder(x)
        return self.decoder(code), code

"""The networks of the paper's CIFAR-10 experiments, and how their weights are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

VGG16 = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M")
MOBILENET = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


class VGG(nn.Module):
    """VGG-16 with batch norm for 32 x 32 images."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 3
        for wide in VGG16:
            if isinstance(wide, str):
                layers.append(nn.MaxPool2d(2))
                continue
            conv = nn.Conv2d(width, wide, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(wide), nn.ReLU()]
            width = wide
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.classifier(self.features(x).flatten(1))


class MobileNetV1(nn.Module):
    """MobileNet V1 for 32 x 32 images: depthwise and pointwise convolutions in turn."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        conv = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        layers: list[nn.Module] = [conv, nn.BatchNorm2d(32), nn.ReLU()]
        width = 32
        for wide, stride in MOBILENET:
            depthwise = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
            pointwise = nn.Conv2d(width, wide, 1, bias=False)
            layers.append(
                nn.Sequential(
                    depthwise, nn.BatchNorm2d(width), nn.ReLU(),
                    pointwise, nn.BatchNorm2d(wide), nn.ReLU(),
                )
            )  # fmt: skip
            width = wide
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.downsample: nn.Module | None = None
        if stride != 1 or narrow != wide:
            shortcut = nn.Conv2d(narrow, wide, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        """The residual sum."""
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + (x if self.downsample is None else self.downsample(x)))


class ResNet56(nn.Module):
    """ResNet-56 for 32 x 32 images: three stages of nine blocks."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.layer1 = self._stage(16, 16, 1)
        self.layer2 = self._stage(16, 32, 2)
        self.layer3 = self._stage(32, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    @staticmethod
    def _stage(narrow: int, wide: int, stride: int) -> nn.Sequential:
        first = BasicBlock(narrow, wide, stride)
        return nn.Sequential(first, *[BasicBlock(wide, wide, 1) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg16": VGG,
    "mobilenetv1": MobileNetV1,
    "resnet56": ResNet56,
}


def load_network(name: str, weights: Path, device: torch.device | str = "cpu") -> nn.Module:
    """A trained network; `weights` is a folder with `<name>-cifar10.safetensors`."""
    model = NETWORKS[name]()
    state = load_file(weights / f"{name}-cifar10.safetensors")
    model.load_state_dict({key: value.float() if value.is_floating_point() else value
                           for key, value in state.items()})  # fmt: skip
    return model.to(device).eval()

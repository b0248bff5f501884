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


class ImageNetVGG16(nn.Module):
    """VGG-16 for ImageNet, with the names of torchvision's; `width` and `size` shrink it."""

    def __init__(self, classes: int = 1000, width: float = 1.0, size: int = 224) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for wide in VGG16:
            if isinstance(wide, str):
                layers.append(nn.MaxPool2d(2))
                continue
            after = max(4, int(wide * width))
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            before = after
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(max(1, size // 32))
        wide_fc = max(8, int(4096 * width))
        self.classifier = nn.Sequential(
            nn.Linear(before * max(1, size // 32) ** 2, wide_fc), nn.ReLU(), nn.Dropout(),
            nn.Linear(wide_fc, wide_fc), nn.ReLU(), nn.Dropout(), nn.Linear(wide_fc, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class ImageNetMobileNetV1(nn.Module):
    """MobileNet V1 for ImageNet: the first convolution halves the image."""

    def __init__(self, classes: int = 1000, width: float = 1.0, size: int = 224) -> None:
        super().__init__()
        before = max(4, int(32 * width))
        conv = nn.Conv2d(3, before, 3, 2 if size > 64 else 1, 1, bias=False)
        layers: list[nn.Module] = [conv, nn.BatchNorm2d(before), nn.ReLU()]
        for wide, stride in MOBILENET:
            after = max(4, int(wide * width))
            depthwise = nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False)
            layers.append(
                nn.Sequential(
                    depthwise, nn.BatchNorm2d(before), nn.ReLU(),
                    nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                )
            )  # fmt: skip
            before = after
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


class Voxels(nn.Module):
    """The 3D convolutional network of ATOM3D's ligand-binding task: one number per complex.

    Townshend et al., NeurIPS 2021: convolutions of 32, 64, 128, 256 filters (3 x 3 x 3, no
    padding), pooling after the second and the fourth, one hidden layer of 512.
    """

    def __init__(self, channels: int = 5, size: int = 41, width: float = 1.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = channels
        for number, wide in enumerate((32, 64, 128, 256)):
            after = max(4, int(wide * width))
            layers += [nn.Conv3d(before, after, 3), nn.ReLU()]
            size -= 2
            if number % 2:
                layers.append(nn.MaxPool3d(2))
                size //= 2
            layers.append(nn.Dropout(0.1))
            before = after
        hidden = max(8, int(512 * width))
        layers += [nn.Flatten(), nn.Linear(before * size**3, hidden), nn.ReLU(), nn.Dropout(0.25)]
        self.model = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The predicted affinity."""
        return self.model(x).flatten()

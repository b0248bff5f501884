"""The networks of the experiments: CIFAR-10, ImageNet and ATOM3D."""

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


def _separable(channels: int, width: int, stride: int) -> nn.Sequential:
    """Return a depthwise and a pointwise convolution, each with batch norm and ReLU."""
    depthwise = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    pointwise = nn.Conv2d(channels, width, 1, bias=False)
    return nn.Sequential(
        depthwise, nn.BatchNorm2d(channels), nn.ReLU(),
        pointwise, nn.BatchNorm2d(width), nn.ReLU(),
    )  # fmt: skip


class VGG(nn.Module):
    """VGG-16 with batch norm, for 32 x 32 images."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in VGG16:
            if isinstance(width, str):
                layers.append(nn.MaxPool2d(2))
                continue
            conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores."""
        return self.classifier(self.features(x).flatten(1))


class MobileNetV1(nn.Module):
    """MobileNetV1 for 32 x 32 images: alternating depthwise and pointwise convolutions."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        conv = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        layers: list[nn.Module] = [conv, nn.BatchNorm2d(32), nn.ReLU()]
        channels = 32
        for width, stride in MOBILENET:
            layers.append(_separable(channels, width, stride))
            channels = width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


class BasicBlock(nn.Module):
    """Two convolutions and a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the ReLU of the residual sum."""
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
    def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        first = BasicBlock(inputs, outputs, stride)
        return nn.Sequential(first, *[BasicBlock(outputs, outputs, 1) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg16": VGG,
    "mobilenetv1": MobileNetV1,
    "resnet56": ResNet56,
}


def load_network(name: str, weights: Path, device: torch.device | str = "cpu") -> nn.Module:
    """Return a trained network; `weights` is a folder with `<name>-cifar10.safetensors`."""
    model = NETWORKS[name]()
    state = load_file(weights / f"{name}-cifar10.safetensors")
    model.load_state_dict({key: value.float() if value.is_floating_point() else value
                           for key, value in state.items()})  # fmt: skip
    return model.to(device).eval()


class ImageNetVGG16(nn.Module):
    """VGG-16 for ImageNet, with torchvision's parameter names; `width` scales every layer."""

    def __init__(self, classes: int = 1000, width: float = 1.0, size: int = 224) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for full_width in VGG16:
            if isinstance(full_width, str):
                layers.append(nn.MaxPool2d(2))
                continue
            scaled_width = max(4, int(full_width * width))
            layers += [nn.Conv2d(channels, scaled_width, 3, padding=1), nn.ReLU()]
            channels = scaled_width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(max(1, size // 32))
        hidden = max(8, int(4096 * width))
        self.classifier = nn.Sequential(
            nn.Linear(channels * max(1, size // 32) ** 2, hidden), nn.ReLU(), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class ImageNetMobileNetV1(nn.Module):
    """MobileNetV1 for ImageNet; `width` scales every layer."""

    def __init__(self, classes: int = 1000, width: float = 1.0, size: int = 224) -> None:
        super().__init__()
        channels = max(4, int(32 * width))
        conv = nn.Conv2d(3, channels, 3, 2 if size > 64 else 1, 1, bias=False)
        layers: list[nn.Module] = [conv, nn.BatchNorm2d(channels), nn.ReLU()]
        for full_width, stride in MOBILENET:
            scaled_width = max(4, int(full_width * width))
            layers.append(_separable(channels, scaled_width, stride))
            channels = scaled_width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


class Voxels(nn.Module):
    """The 3D convolutional network of ATOM3D's ligand-binding task, with one output.

    Townshend et al., NeurIPS 2021: convolutions with 32, 64, 128 and 256 filters (3 x 3 x 3, no
    padding), pooling after the second and the fourth, and one hidden layer of 512 neurons.
    """

    def __init__(self, channels: int = 5, size: int = 41, width: float = 1.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, full_width in enumerate((32, 64, 128, 256)):
            scaled_width = max(4, int(full_width * width))
            layers += [nn.Conv3d(channels, scaled_width, 3), nn.ReLU()]
            size -= 2
            if number % 2:
                layers.append(nn.MaxPool3d(2))
                size //= 2
            layers.append(nn.Dropout(0.1))
            channels = scaled_width
        hidden = max(8, int(512 * width))
        layers += [nn.Flatten(), nn.Linear(channels * size**3, hidden), nn.ReLU(), nn.Dropout(0.25)]
        self.model = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the predicted affinities."""
        return self.model(x).flatten()

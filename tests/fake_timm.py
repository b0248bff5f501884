"""A stand-in for timm, for machines without it: two models and the mechanism for pruned ones.

`adapt_model_from_string` is written after timm's: it changes convolutions, batch norms and the
inputs of linear layers, takes every grouped convolution for a depthwise one, and leaves the outputs
of linear layers as they are.
"""

from __future__ import annotations

import copy
import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn


@dataclass
class Card:
    """How a model takes images."""

    input_size: tuple[int, ...] = (3, 8, 8)
    mean: tuple[float, ...] = (0.5, 0.4, 0.3)
    std: tuple[float, ...] = (0.2, 0.3, 0.4)
    crop_pct: float = 0.8
    crop_mode: str = "center"
    interpolation: str = "bilinear"
    num_classes: int = 5
    first_conv: str = "stem"
    url: str = ""
    hf_hub_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class SmallNet(nn.Module):
    """A residual block with a depthwise convolution; timm can say all of its widths."""

    def __init__(self, num_classes: int = 5, groups: int = 12) -> None:
        super().__init__()
        self.stem, self.bn1 = nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.depth = nn.Conv2d(12, 12, 3, padding=1, groups=groups, bias=False)
        self.bn2, self.wide = nn.BatchNorm2d(12), nn.Conv2d(12, 24, 1)
        self.last = nn.Conv2d(24, 16, 1)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.stem(x)))
        x = torch.relu(self.wide(torch.relu(self.bn2(self.depth(x)))))
        return self.fc(torch.relu(self.last(x)).mean((2, 3)))


class HiddenNet(nn.Module):
    """A network with a hidden linear layer, whose width timm cannot change."""

    def __init__(self, num_classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.hidden, self.fc = nn.Linear(12, 40), nn.Linear(40, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.hidden(torch.relu(self.stem(x)).mean((2, 3)))))


def grouped(**keywords: Any) -> SmallNet:
    """Return a network with a grouped convolution, which timm takes for a depthwise one."""
    return SmallNet(groups=4, **keywords)


MODELS: dict[str, Any] = {"small_net": SmallNet, "hidden_net": HiddenNet, "grouped_net": grouped}
for _model in (SmallNet, HiddenNet):
    _model.__module__ = "timm.models.small"


def adapt_model_from_string(parent: nn.Module, text: str) -> nn.Module:
    """Return a copy with the sizes of the text, without its weights."""
    shapes = {}
    for entry in text.split("***"):
        name, _, shape = entry.partition(":")
        if shape[1:-1]:
            shapes[name] = [int(number) for number in shape[1:-1].split(",")]
    new = copy.deepcopy(parent)
    for name, module in parent.named_modules():
        other: nn.Module
        if isinstance(module, nn.Conv2d):
            width, inputs = shapes[f"{name}.weight"][:2]
            depthwise = module.groups > 1
            other = nn.Conv2d(
                width if depthwise else inputs, width, module.kernel_size, module.stride,
                module.padding, groups=width if depthwise else 1, bias=module.bias is not None,
            )  # fmt: skip
        elif isinstance(module, nn.BatchNorm2d):
            other = nn.BatchNorm2d(shapes[f"{name}.weight"][0], module.eps)
        elif isinstance(module, nn.Linear):
            other = nn.Linear(shapes[f"{name}.weight"][1], module.out_features)
        else:
            continue
        setattr(new, name, other)
    return new.eval()


class FakeTimm(types.ModuleType):
    """The module; `cards` says how its models take images."""

    __version__ = "1.0.0"

    def __init__(self) -> None:
        super().__init__("timm")
        self.cards = {name: Card() for name in MODELS}
        self.loaded: dict[str, Any] | None = None
        """The card that the weights of the last model were loaded with."""
        self.models = types.ModuleType("timm.models")
        self.models.adapt_model_from_string = adapt_model_from_string  # type: ignore[attr-defined]

    def create_model(
        self,
        name: str,
        pretrained: bool = False,
        pretrained_cfg_overlay: dict[str, Any] | None = None,
        **keywords: Any,
    ) -> nn.Module:
        architecture = name.partition(".")[0]
        model: nn.Module = MODELS[architecture](**keywords)
        model.pretrained_cfg = self.cards[architecture].to_dict()  # type: ignore[assignment]
        if pretrained:
            self.loaded = pretrained_cfg_overlay
            assert pretrained_cfg_overlay is not None
            state = torch.load(pretrained_cfg_overlay["file"], weights_only=True)
            if keywords.get("num_classes", 5) != 5:
                state = {key: value for key, value in state.items() if not key.startswith("fc")}
            model.load_state_dict(state, strict=False)
        return model

    def is_model(self, name: str) -> bool:
        return name in MODELS

    def list_models(self, pattern: str = "", pretrained: bool = False) -> list[str]:
        if pretrained:
            return [f"{pattern.partition('.')[0]}.in1k"]
        return list(MODELS)

    def get_pretrained_cfg(self, name: str) -> Card | None:
        return self.cards.get(name.partition(".")[0])


def install(monkeypatch: pytest.MonkeyPatch) -> FakeTimm:
    """Make `import timm` give the stand-in, for one test."""
    fake = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", fake)
    monkeypatch.setitem(sys.modules, "timm.models", fake.models)
    return fake

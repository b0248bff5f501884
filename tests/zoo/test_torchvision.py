"""The detectors of torchvision: skipped where it cannot be imported."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import interpress
from interpress import Method

QUICK: dict[str, Any] = {"method": Method(allocation="marginal", refit=False), "progress": False}


@pytest.fixture(scope="module")
def detection() -> Any:
    try:
        return importlib.import_module("torchvision.models.detection")
    except (ImportError, RuntimeError) as problem:  # its compiled operators may be missing
        pytest.skip(f"torchvision cannot be imported ({problem})")


def test_the_backbone_of_ssdlite_can_shrink(detection: Any) -> None:
    torch.manual_seed(0)
    model = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    spaces = interpress.find_spaces(model.eval().backbone, torch.rand(2, 3, 96, 96))
    assert spaces.cost.shrinkable_share() > 0.99


@pytest.mark.slow  # a ResNet-50 is compressed
def test_retinanet_takes_lists_of_images(detection: Any) -> None:
    torch.manual_seed(0)
    model = detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=64, max_size=96, num_classes=3
    ).eval()
    images = [[torch.rand(3, 64, 80) for _ in range(2)] for _ in range(2)]
    result = interpress.compress(model, images, part="backbone", flops=0.7, **QUICK)
    assert result.flops <= 0.7
    assert len(result.model.get_submodule("backbone")(torch.rand(1, 3, 64, 96))) == 5

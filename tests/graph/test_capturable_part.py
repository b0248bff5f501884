"""A detector that cannot be captured: the error names the part that can be."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from interpress import CaptureError, compress, find_spaces


class Chooses(nn.Module):
    """A backbone, and boxes that are kept by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3)),
                nn.Conv2d(6, 5, 1),
            ]
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        for stage in self.stages:
            x = stage(x)
        boxes = []
        for row in x.flatten(2).transpose(1, 2):
            kept = row[row[:, 0] > 0]
            if len(kept):
                boxes.append(kept[kept[:, 0].argmax()])
        return boxes


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes = Chooses(), nn.Linear(3, 2)

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        return self.body(torch.stack(images))


@pytest.mark.parametrize(
    ("model", "part"), [(Chooses(), "stages.0"), (Detector(), "body.stages.0")]
)
def test_the_error_names_the_part(model: nn.Module, part: str) -> None:
    images = torch.randn(2, 3, 8, 8)
    inputs = images if isinstance(model, Chooses) else ([*images],)
    with pytest.raises(CaptureError, match="could not capture") as caught:
        find_spaces(model, inputs)
    assert f"compress only the largest part without it: part={part!r}" in str(caught.value)
    assert "torch.where" in str(caught.value)


def test_the_advice_works() -> None:
    model, images = Chooses(), torch.randn(40, 3, 8, 8)
    with pytest.raises(CaptureError) as caught:
        find_spaces(model, images)
    (part,) = re.findall(r"part='([a-z.0-9]+)'", str(caught.value))
    result = compress(model, images, part=part, flops=0.6, progress=False)
    assert result.model.get_submodule(part)[0].out_channels < 8
    assert isinstance(result.model(images), list)


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w if x.sum() > 0 else x


def test_without_parts_there_is_no_name() -> None:
    with pytest.raises(CaptureError, match="or compress a submodule without it"):
        find_spaces(Bare(), torch.randn(4, 3))

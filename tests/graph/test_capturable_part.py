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


class Proposes(nn.Module):
    """A small backbone that does most of the work; its head has more weights, and drops boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
        self.proposals, self.head = Keeps(), Head()
        self.twice = nn.Conv2d(4, 4, 9, padding=4)

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        maps = self.backbone(torch.stack(images))
        maps = self.twice(self.twice(maps))
        return [self.head(self.proposals(row)) for row in maps[:1]]


class Keeps(nn.Module):
    def forward(self, row: Tensor) -> Tensor:
        kept = row[:, :2, :2].flatten(1).T
        kept = kept[kept[:, 0] > kept[:, 0].mean()]
        return kept[: 3 if len(kept) > 2 else 1]  # never as many as there are images


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 400), nn.ReLU(), nn.Linear(400, 400))

    def forward(self, rows: Tensor) -> Tensor:
        scores = self.layers(rows)
        return scores[scores[:, 0] > 0] if scores.sum() > 0 else scores


def test_the_part_has_the_most_flops_and_not_the_most_weights() -> None:
    with pytest.raises(CaptureError, match="part='backbone'"):
        find_spaces(Proposes(), ([*torch.randn(2, 3, 24, 24)],))


def test_the_part_gets_one_row_per_example() -> None:
    images = [*torch.randn(2, 3, 9, 9)]  # so small that the head has the most FLOPs
    with pytest.raises(CaptureError, match="part='backbone'"):
        find_spaces(Proposes(), (images,))


def test_a_part_that_cannot_be_captured_is_not_proposed() -> None:
    class Outer(nn.Module):
        """The capture fails before the larger part, which cannot be captured either."""

        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = nn.Linear(8, 8), Head()
            self.large.layers[0] = nn.Linear(8, 400)

        def forward(self, x: Tensor) -> Tensor:
            y = self.small(x)
            return self.large(y if y.sum() > 0 else -y)

    with pytest.raises(CaptureError, match=r"part='large\.layers'"):
        find_spaces(Outer(), torch.randn(4, 8))


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w if x.sum() > 0 else x


def test_without_parts_there_is_no_name() -> None:
    with pytest.raises(CaptureError, match="or compress a submodule without it"):
        find_spaces(Bare(), torch.randn(4, 3))

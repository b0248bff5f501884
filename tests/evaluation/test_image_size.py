"""Outputs with numbers per place of an image are no scores of classes."""

from __future__ import annotations

from typing import Any

import torch
from tests.zoo.members import build
from torch import Tensor, nn

from interpress.evaluation.image_size import outputs_of_places
from interpress.evaluation.output_meaning import find_meaning
from interpress.evaluation.outputs import flatten_output
from interpress.graph.example import Example


class Boxes(nn.Module):
    """Numbers per place, (B, 6, places), and scores of three classes for two queries."""

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()
        self.conv, self.score = nn.Conv2d(3, 6, 3, 2), nn.Linear(6, 3)
        self.fixed, self.calls = fixed, 0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        y = self.conv(x)
        assert not self.fixed or y.shape[-1] == 4
        queries = torch.stack([y.mean((2, 3)), y.amax((2, 3))], 1)
        return {"boxes": y.flatten(2), "scores": self.score(queries)}


def places(model: nn.Module, inputs: Any) -> frozenset[str]:
    example = Example.of(inputs)
    return outputs_of_places(model, example, flatten_output(example.call(model))[0])


def test_an_output_that_grows_with_the_image_has_places() -> None:
    assert places(Boxes(), torch.randn(2, 3, 9, 9)) == {"boxes"}


def test_a_model_for_one_size_and_inputs_without_images() -> None:
    assert places(Boxes(fixed=True), torch.randn(2, 3, 9, 9)) == frozenset()
    assert places(nn.Linear(4, 5), torch.randn(2, 3, 4)) == frozenset()


def test_the_model_is_left_as_it_was() -> None:
    model = Boxes().train()
    outputs = flatten_output(model(torch.randn(2, 3, 9, 9)))[0]
    outputs_of_places(model, Example.of(torch.randn(2, 3, 9, 9)), outputs)
    assert model.calls == 1
    assert model.training


def test_a_detector_gives_numbers_and_not_decisions() -> None:
    model, images = build("yolo")
    meaning = find_meaning(model, Example.of(images))
    assert meaning.kind == "regression"
    assert find_meaning(model, Example.of(images), kind="classification").kind == "classification"


def test_scores_of_queries_decide_and_boxes_do_not() -> None:
    meaning = find_meaning(Boxes(), Example.of(torch.randn(2, 3, 9, 9)))
    assert (meaning.name, meaning.kind) == ("scores", "classification")
    model, images = build("detr")
    meaning = find_meaning(model, Example.of(images))
    assert (meaning.name, meaning.kind) == ("pred_logits", "classification")

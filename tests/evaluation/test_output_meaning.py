"""Which output of a model is compared, and what its shape says it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, DataError
from interpress.evaluation.output_kinds import KINDS
from interpress.evaluation.output_meaning import AUTO, check_kind, find_meaning
from interpress.graph.example import Example


class Returns(nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


X = torch.randn(4, 5)
GUESSES: list[tuple[Callable[[Tensor], Any], int, str]] = [
    (lambda x: x, 0, "classification"),
    (lambda x: x[:, None].expand(-1, 7, -1), 0, "classification"),  # tokens
    (lambda x: x[:, :1], 0, "regression"),
    (lambda x: x[:, 0], 0, "regression"),
    (lambda x: x[:, :, None, None].expand(-1, -1, 3, 3), 0, "regression"),  # an image
    (lambda x: {"logits": x[:, :, None, None].expand(-1, -1, 3, 3)}, 0, "segmentation"),
    (lambda x: x.argmax(1), 0, "decisions"),
    (lambda x: (x.argmax(1), x), 1, "classification"),  # the first floating-point output
    (lambda x: {"hidden": x[:, :1], "logits": x}, 1, "classification"),  # logits by name
    (lambda x: {"logits": x, "hidden": x[:, :1]}, 0, "classification"),
]


@pytest.mark.parametrize(("function", "position", "kind"), GUESSES)
def test_the_shape_of_the_output_tells_its_meaning(
    function: Callable[[Tensor], Any], position: int, kind: str
) -> None:
    meaning = find_meaning(Returns(function), Example((X,)))
    assert meaning.kind == kind
    assert meaning.rule is KINDS[kind]
    assert meaning.position == position


def test_a_given_kind_overrides_the_shape() -> None:
    assert find_meaning(Returns(lambda x: x[:, :1]), Example((X,)), "binary").kind == "binary"
    assert find_meaning(nn.Identity(), Example((X,)), "regression").kind == "regression"


@pytest.mark.parametrize("kind", [AUTO, *KINDS])
def test_known_kinds(kind: str) -> None:
    assert check_kind(kind) == kind


def test_an_unknown_kind_lists_the_choices() -> None:
    with pytest.raises(ArgumentError, match=f"kind='guess'; choose one of auto.*{[*KINDS][-1]}"):
        check_kind("guess")


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (lambda x: x[:, :1], "classification", r"at least 2 classes.*shape \(4, 1\)"),
        (lambda x: x[:, 0], "classification", r"at least 2 classes.*shape \(4,\)"),
        (lambda x: x[:, :1], "segmentation", r"at least 2 classes"),
        (lambda x: x, "decisions", "kind='decisions' is for outputs of integers"),
    ],
)
def test_a_kind_that_the_output_cannot_have(
    function: Callable[[Tensor], Any], kind: str, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        find_meaning(Returns(function), Example((X,)), kind)


def test_a_model_without_tensors_has_no_meaning() -> None:
    with pytest.raises(DataError, match="Returns returns no tensor"):
        find_meaning(Returns(lambda x: "text"), Example((X,)))

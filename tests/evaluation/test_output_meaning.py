"""Which output of a model is compared, and what its shape says it means."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, DataError
from interpress.evaluation.output_kinds import KINDS
from interpress.evaluation.output_meaning import (
    AUTO,
    Output,
    OutputMeaning,
    check_kind,
    check_output,
    find_meaning,
)
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
    (lambda x: (x.argmax(1), x), 1, "classification"),  # the floating-point output
    (lambda x: {"hidden": x[:, :1], "logits": x}, 1, "classification"),  # logits by name
    (lambda x: {"logits": x, "hidden": x[:, :1]}, 0, "classification"),
    (lambda x: {"hidden": x, "logits": x[:, :1]}, 1, "regression"),  # logits, whatever their shape
    (lambda x: {"out": {"hidden": x, "logits": x[:, :2]}}, 1, "classification"),
    (lambda x: (x[:, :4], x), 1, "classification"),  # the most classes
    (lambda x: (x, x[:, :4]), 0, "classification"),
    (lambda x: {"b": x, "a": x + 1}, 1, "classification"),  # a tie: by name
    (lambda x: [x] * 11 + [x + 1], 0, "classification"),  # a tie: by index
    (lambda x: {"small": x[:, 0], "image": x[:, :, None, None]}, 1, "regression"),  # most entries
    (lambda x: (torch.ones(3, 90), x), 1, "classification"),  # one row per example
    (lambda x: {"mean": x.mean(), "each": x[:, 0]}, 1, "regression"),
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("segmentation", "mask"),
        ("classification", "hidden"),
        ("binary", "score"),
        ("decisions", "class"),
        ("regression", "mask"),
    ],
)
def test_a_given_kind_chooses_among_the_outputs_that_can_have_it(kind: str, name: str) -> None:
    model = Returns(
        lambda x: {
            "class": x.argmax(1), "score": x[:, 0], "hidden": x,
            "mask": x[:, :2, None, None].expand(-1, -1, 4, 4),
        }
    )  # fmt: skip
    assert find_meaning(model, Example((X,)), kind).name == name


Point = namedtuple("Point", ["x", "y"])
CHOICES: list[tuple[Callable[[Tensor], Any], Output, str]] = [
    (lambda x: {"cls": x, "box": x[:, :4]}, "box", "box"),
    (lambda x: {"heads": {"cls": x, "box": x[:, :4]}}, "heads.box", "heads.box"),
    (lambda x: (x, x[:, :4]), 1, "[1]"),
    (lambda x: (x, x[:, :4]), -2, "[0]"),
    (lambda x: (x, x[:, :4]), "[1]", "[1]"),
    (lambda x: (x, (x[:, :4], x)), "[1][0]", "[1][0]"),
    (lambda x: Point(x, x[:, :4]), 1, "y"),
    (lambda x: {0: x, 1: x[:, :4]}, 1, "[1]"),
    (lambda x: x, 0, ""),
    (lambda x: {"cls": x, "box": x[:, :4]}, lambda out: out["box"], "box"),
]


@pytest.mark.parametrize(("function", "output", "name"), CHOICES)
def test_output_chooses(function: Callable[[Tensor], Any], output: Output, name: str) -> None:
    model = Returns(function)
    meaning = find_meaning(model, Example((X,)), output=output)
    assert meaning.name == name
    tensors = [X, X[:, :4]] if len(meaning.layout.names) == 2 else [X] * len(meaning.layout.names)
    again = find_meaning(model, Example((X,)), output=meaning.output)
    assert again.pick(tensors) is meaning.pick(tensors)
    assert len(list(meaning.others(tensors))) == len(tensors) - 1


def test_a_function_may_compute_a_tensor() -> None:
    def largest(outputs: Any) -> Tensor:
        return outputs["cls"].amax(1)

    model = Returns(lambda x: {"cls": x, "n": 3, "box": x[:, :4]})
    meaning = find_meaning(model, Example((X,)), output=largest)
    assert (meaning.name, meaning.kind, meaning.position) == ("largest", "regression", None)
    assert torch.equal(meaning.pick([X, X[:, :4]]), X.amax(1))
    assert [name for name, _ in meaning.others([X, X[:, :4]])] == ["box", "cls"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("mask", "output='mask' is no output of the model; its outputs are 'box', 'heads.cls'"),
        ("heads", "output='heads' is no output"),
        (0, "output=0 is no output of the model; its outputs are 'box', 'heads.cls'"),
        (lambda out: out["mask"], "failed .KeyError: 'mask'.*tensors are 'box', 'heads.cls'"),
        (lambda out: 3, "returned a int; return a tensor"),
        (True, "output=True; give the name"),
        ("", "output=''; give the name"),
        (1.5, "output=1.5; give the name"),
    ],
)
def test_an_output_that_is_not_there(output: Any, message: str) -> None:
    model = Returns(lambda x: {"heads": {"cls": x}, "box": x[:, :4]})
    with pytest.raises(ArgumentError, match=message):
        find_meaning(model, Example((X,)), output=output)


def test_an_index_must_be_within_the_output() -> None:
    check_output(0)
    for function, index in ((lambda x: (x, x), 2), (lambda x: x, 1)):
        with pytest.raises(ArgumentError, match=f"output={index} is no output of the model"):
            find_meaning(Returns(function), Example((X,)), output=index)


def test_the_distance_is_the_mean_over_the_floating_point_outputs() -> None:
    model = Returns(lambda x: {"cls": x, "box": x[:, :2], "label": x.argmax(1), "n": x.mean()})
    first = [X, X[:, :2], X.argmax(1), X.mean()]
    meaning = find_meaning(model, Example((X,)))
    changed = [X, 1.1 * X[:, :2], X.argmin(1), 3 * X.mean()]
    box = KINDS["regression"].distance(X[:, :2], 1.1 * X[:, :2])
    examples = [Example((X,))]
    assert meaning.distance([first], [changed], examples) == pytest.approx(box / 2)
    single = OutputMeaning(0, "classification")
    scores = KINDS["classification"].distance(X, X.roll(1, 1))
    assert single.distance([[X]], [[X.roll(1, 1)]], examples) == scores


def test_one_number_for_the_whole_batch_cannot_decide() -> None:
    with pytest.raises(ArgumentError, match="'loss' is one number for the whole batch"):
        find_meaning(Returns(lambda x: {"cls": x, "loss": x.mean()}), Example((X,)), output="loss")


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

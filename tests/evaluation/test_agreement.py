"""`agreement` of two networks on data with and without labels."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, CaptureError, DataError, agreement
from interpress.evaluation.tally import wilson


class Fixed(nn.Module):
    """Returns scores that are its input, shifted."""

    def __init__(self, shift: Tensor | None = None) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(3) if shift is None else shift)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x[:, :1]


class Decides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(1)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) + 0.0 * y[:, None]


SCORES = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0.9, 0], [0.9, 1, 0]])
LABELS = torch.tensor([0, 1, 2, 0, 0])
OTHER = Fixed(torch.tensor([0.0, 0.5, 0.0]))
X = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))


def mlp() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 6)).eval()


def test_a_network_agrees_with_itself_in_everything() -> None:
    result = agreement(Fixed(), Fixed(), (SCORES, LABELS))
    assert result.agreement == 1.0
    assert result.divergence == 0.0
    assert result.flips == ()
    assert result.accuracy == (0.8, 0.8)
    assert result.interval is not None
    assert result.interval[0] == pytest.approx(wilson(5, 5)[0])


LABELLED: list[Any] = [
    (SCORES, LABELS),
    [(SCORES[:2], LABELS[:2]), (SCORES[2:], LABELS[2:])],
    {"x": SCORES, "labels": LABELS},
    [{"x": SCORES, "target": LABELS}],
]


@pytest.mark.parametrize("data", LABELLED)
def test_what_flipped_and_in_which_class(data: Any) -> None:
    result = agreement(Fixed(), OTHER, data)
    assert result.agreement == 0.8
    (flip,) = result.flips
    assert (flip.index, flip.before, flip.after, flip.label) == (3, 0, 1, 0)
    assert result.accuracy == (0.8, 0.6)
    zero = next(row for row in result.per_class if row.label == 0)
    assert (zero.count, zero.agreement) == (3, pytest.approx(2 / 3))


def test_labels_can_be_given_apart_one_for_each_example() -> None:
    assert agreement(Fixed(), OTHER, SCORES).accuracy is None
    assert agreement(Fixed(), OTHER, SCORES, labels=LABELS).accuracy == (0.8, 0.6)
    assert agreement(Fixed(), OTHER, SCORES, labels=LABELS.tolist()).accuracy == (0.8, 0.6)
    assert agreement(Fixed(), OTHER, SCORES, labels=LABELS[:, None]).accuracy == (0.8, 0.6)
    with pytest.raises(DataError, match="4 labels for at least 5 examples; give one for each"):
        agreement(Fixed(), OTHER, SCORES, labels=LABELS[:4])
    with pytest.raises(DataError, match="6 labels for 5 examples; give one for each"):
        agreement(Fixed(), OTHER, SCORES, labels=torch.zeros(6).long())
    with pytest.raises(DataError, match=r"labels of shape \(5, 2\)"):
        agreement(Fixed(), OTHER, SCORES, labels=torch.zeros(5, 2))


def test_a_second_input_is_not_a_label() -> None:
    two, model = TwoInputs(), mlp()
    assert agreement(two, two, (X, torch.arange(200) % 4)).accuracy is None
    sevens = torch.full((100,), 7)
    assert agreement(model, model, [(X[:100], sevens), (X[100:],)]).accuracy == (0.0, 0.0)


def test_a_regression_gets_an_error() -> None:
    x = torch.randn(500, 4)
    result = agreement(Scaled(1.0), Scaled(1.1), x)
    assert result.agreement is None
    assert math.isnan(float(result))
    assert result.output_error == pytest.approx(0.1, rel=0.01)
    binary = agreement(Scaled(1.0), Scaled(-1.0), x, kind="binary")
    assert binary.agreement == 0.0


def test_output_error_is_relative_to_each_outputs_spread() -> None:
    model = nn.Linear(16, 2)
    model.bias.data = torch.tensor([0.0, 1000.0])
    flat = copy.deepcopy(model)
    nn.init.zeros_(flat.weight)
    result = agreement(model, flat, X, kind="regression")
    assert result.output_error == pytest.approx(1.0, abs=0.05)


def test_segmentation_and_decisions() -> None:
    images = torch.randn(4, 5, 6, 6)
    result = agreement(nn.Identity(), nn.ReLU(), images, kind="segmentation")
    assert result.decisions == 4 * 36
    whole = agreement(Decides(), Decides(), SCORES)
    assert (whole.kind, whole.agreement, whole.divergence) == ("decisions", 1.0, None)
    with pytest.raises(ArgumentError, match="choose one of auto"):
        agreement(Fixed(), Fixed(), SCORES, kind="guess")
    with pytest.raises(ArgumentError, match="has shape"):
        agreement(nn.Identity(), nn.Identity(), torch.randn(4, 1), kind="classification")


def test_several_decisions_per_example_do_not_narrow_the_interval() -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 6))
    ids = torch.randint(50, (5, 12))
    low, high = agreement(model, model, ids).interval or (1.0, 1.0)
    assert low < 0.7
    assert high == 1.0


def test_networks_that_give_nan_do_not_agree() -> None:
    broken = mlp()
    nn.init.constant_(broken[2].weight, math.nan)
    for pair in ((broken, mlp()), (mlp(), broken), (broken, broken)):
        with pytest.raises(DataError, match="network's output is NaN"):
            agreement(*pair, X)


def test_networks_are_left_in_their_mode_and_must_match() -> None:
    a, b = Fixed().train(), nn.Sequential(nn.Dropout(0.9), Fixed()).train()
    assert agreement(a, b, SCORES).agreement == 1.0
    assert a.training
    assert b[0].training
    with pytest.raises(DataError, match="shapes"):
        agreement(Fixed(), nn.Linear(3, 4), SCORES)
    with pytest.raises(DataError, match="no data"):
        agreement(Fixed(), Fixed(), [])


@dataclasses.dataclass
class Found:
    """An output that torch does not know until it is registered."""

    classes: Tensor
    box: Tensor


class TwoHeads(nn.Module):
    """Scores and a box, in one of several containers."""

    def __init__(self, shift: float = 0.0, container: str = "dict") -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.tensor(shift))
        self.container = container

    def forward(self, x: Tensor) -> Any:
        classes, box = x + self.shift * SHIFT, 10 + x[:, :2] * (1 + self.shift)
        return {
            "dict": {"classes": classes, "box": box},
            "reversed": {"box": box, "classes": classes},
            "dataclass": Found(classes, box),
            "tuple": (box, classes),
        }[self.container]


SHIFT = torch.tensor([0.0, 5.0, 0.0])


@pytest.mark.parametrize("container", ["dict", "reversed", "dataclass", "tuple"])
def test_every_output_is_compared(container: str) -> None:
    first, second = TwoHeads(0.0, container), TwoHeads(0.1, container)
    result = agreement(first, second, (SCORES, LABELS))
    assert (result.kind, result.agreement, result.accuracy) == ("classification", 0.8, (0.8, 0.6))
    (box,) = result.others
    if container == "tuple":
        assert (result.output, box.name) == ("[1]", "[0]")
    else:
        assert (result.output, box.name) == ("classes", "box")
    x = SCORES[:, :2].double()
    spread = (x - x.mean(0)).square().sum()
    assert box.error == pytest.approx(float((0.01 * x.square().sum() / spread).sqrt()), rel=1e-4)


@pytest.mark.parametrize("output", ["box", lambda out: out["box"]])
def test_output_chooses_which_one_decides(output: Any) -> None:
    result = agreement(TwoHeads(), TwoHeads(0.1), SCORES, output=output, kind="regression")
    assert (result.output, result.agreement) == ("box", None)
    assert result.output_error is not None
    assert [other.name for other in result.others] == ["classes"]
    other = agreement(TwoHeads(), TwoHeads(0.1), SCORES)
    assert result.output_error == pytest.approx(other.others[0].error)


def test_outputs_are_matched_by_name() -> None:
    same = agreement(TwoHeads(), TwoHeads(0.1), SCORES)
    assert agreement(TwoHeads(), TwoHeads(0.1, "reversed"), SCORES) == same
    with pytest.raises(DataError, match="compare networks with the same outputs"):
        agreement(TwoHeads(), TwoHeads(0.1, "tuple"), SCORES)


def test_a_function_may_compute_the_decision() -> None:
    def small_box(outputs: dict[str, Tensor]) -> Tensor:
        return (outputs["box"][:, 0] > 11).long()

    result = agreement(TwoHeads(), TwoHeads(0.1), SCORES, output=small_box)
    assert (result.kind, result.output) == ("decisions", "small_box")
    assert [other.name for other in result.others] == ["box", "classes"]


def test_inputs_of_a_wrong_shape_are_named() -> None:
    message = r"Sequential does not run on an input of shape \(5, 7\) float32 .*pass what its"
    with pytest.raises(CaptureError, match=message):
        agreement(mlp(), mlp(), torch.zeros(5, 7))

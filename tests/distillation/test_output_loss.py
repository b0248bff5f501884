import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError
from interpress.distillation.output_loss import OutputLoss
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example


class Fixed(nn.Module):
    """Returns what it was given to return."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor) -> object:
        return self.output


def loss_of(reference: Tensor, kind: str = "auto") -> OutputLoss:
    example = Example.of(torch.zeros(len(reference), 3))
    meaning = find_meaning(Fixed(reference), example, kind)
    return OutputLoss(meaning, [[reference]])


def test_predicting_the_mean_gives_one() -> None:
    scores = torch.randn(200, 5)
    centred = scores - scores.mean(1, keepdim=True)
    mean = centred.mean(0, keepdim=True).expand(200, 5)
    loss = loss_of(scores)([scores], [mean], Example.of(torch.zeros(200, 3)))
    assert float(loss.mean()) == pytest.approx(1.0, rel=1e-5)


def test_a_constant_added_to_all_scores_is_free() -> None:
    scores = torch.randn(20, 5)
    loss = loss_of(scores)([scores], [scores + 7.0], Example.of(torch.zeros(20, 3)))
    assert float(loss.abs().max()) < 1e-10


def test_padding_does_not_count() -> None:
    scores = torch.randn(4, 6, 5)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 4:] = False
    other = scores.clone()
    other[:, 4:] += torch.randn(4, 2, 5)
    example = Example((torch.zeros(4, 3),), masks=(mask,))
    assert float(loss_of(scores)([scores], [other], example).abs().max()) == 0.0
    other[:, 0] += torch.randn(4, 5)
    assert float(loss_of(scores)([scores], [other], example).min()) > 0.0


def test_all_outputs_count() -> None:
    outputs = {"logits": torch.randn(50, 4), "box": 100 * torch.randn(50, 2)}
    example = Example.of(torch.zeros(50, 3))
    meaning = find_meaning(Fixed(outputs), example)
    flat = [outputs[name] for name in meaning.layout.names]
    loss = OutputLoss(meaning, [flat])
    worse = [tensor + (50.0 if tensor.shape[1] == 2 else 0.0) for tensor in flat]
    assert float(loss(flat, flat, example).max()) == 0.0
    assert float(loss(flat, worse, example).mean()) == pytest.approx(0.25, rel=0.3)  # (50 / 100)^2


def test_integers_have_no_gradient() -> None:
    with pytest.raises(ArgumentError, match="no gradient"):
        loss_of(torch.arange(20))


def test_infinite_scores_are_left_out() -> None:
    scores = torch.randn(20, 5)
    scores[:, 0] = -torch.inf
    other = scores.clone()
    other[:, 1] += 1.0
    loss = loss_of(scores)([scores], [other], Example.of(torch.zeros(20, 3)))
    assert bool(loss.isfinite().all())
    assert float(loss.min()) > 0.0

"""Recorded gradients are those that are computed as usual."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import Pair
from interpress.distillation.recorded import Gradients
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
_BATCHES = 10


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ReadsValues(Plain):
    """Cannot be recorded: Python decides by a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if float(x.sum()) > 0 else -x)


class Changes(Plain):
    """Can be recorded, but wrongly: Python changes what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * next(self.calls)


def pair_of(kind: type[nn.Module], device: str) -> Pair:
    torch.manual_seed(0)
    original, smaller = (network.to(device).eval() for network in (kind(), kind()))
    example = Example.of(torch.randn(8, 3, 8, 8, device=device))
    meaning = find_meaning(original, example)
    with torch.no_grad():
        loss = OutputLoss(meaning, [[original(example.args[0])]])
    return Pair(original, smaller, meaning, loss, 8)


def batches(device: str) -> list[Example]:
    """Batches of two sizes, as those of an epoch are."""
    sizes = [8 if number % 3 else 5 for number in range(2 * _BATCHES)]
    return [Example.of(torch.randn(size, 3, 8, 8, device=device)) for size in sizes]


def gradients_after(add: object, pair: Pair, example: Example) -> list[Tensor]:
    assert callable(add)
    add(example)
    gradients = [weight.grad.clone() for weight in pair.smaller.parameters()]
    for weight in pair.smaller.parameters():
        weight.grad = None
    return gradients


def check(kind: type[nn.Module], device: str) -> Gradients:
    pair = pair_of(kind, device)
    recorded = Gradients(pair)
    for example in batches(device):
        got = gradients_after(recorded.add, pair, example)
        expected = gradients_after(pair.add_gradients, pair, example)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2 * float(b.abs().max()))
    return recorded


def test_nothing_is_recorded_on_a_cpu() -> None:
    assert not check(Plain, "cpu")._recordings


@pytest.mark.cuda
@needs_cuda
def test_replayed_gradients_are_the_usual_ones() -> None:
    assert len(check(Plain, "cuda")._recordings) == 2


@pytest.mark.cuda
@needs_cuda
def test_what_cannot_be_recorded_is_computed_as_usual() -> None:
    assert not check(ReadsValues, "cuda")._recordings
    assert torch.randn(3, device="cuda").isfinite().all()  # random numbers work as before


@pytest.mark.cuda
@needs_cuda
def test_a_recording_that_gives_other_gradients_is_not_used() -> None:
    pair = pair_of(Changes, "cuda")
    recorded = Gradients(pair)
    for example in batches("cuda"):
        gradients_after(recorded.add, pair, example)
    assert not recorded._recordings

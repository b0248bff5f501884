"""Pictures with channels last are used where both networks give the same with them."""

import copy

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.distillation.memory_format import use_channels_last, with_channels_last
from interpress.graph.example import Example

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


class Flattens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 8, 3)
        self.last = nn.Linear(128, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.conv(x).relu()).flatten(1))


class Views(Flattens):
    """Its view needs values that lie side by side."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.conv(x).relu()).view(len(x), -1))


def test_only_pictures_change_their_format() -> None:
    picture, tokens = torch.randn(2, 3, 4, 4), torch.ones(2, 3, 4, 4, dtype=torch.long)
    assert with_channels_last(picture).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(with_channels_last(picture), picture)
    assert with_channels_last(tokens).is_contiguous()


def test_a_cpu_keeps_its_format() -> None:
    model = Flattens().eval()
    assert not use_channels_last(model, model, Example.of(torch.randn(4, 3, 8, 8)))


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize(("kind", "expected"), [(Flattens, True), (Views, False)])
def test_it_is_used_where_the_code_allows_it(kind: type[nn.Module], expected: bool) -> None:
    torch.manual_seed(0)
    original = kind().cuda().eval()
    smaller = copy.deepcopy(original)
    assert use_channels_last(original, smaller, Example.of(torch.randn(4, 3, 8, 8).cuda())) is (
        expected
    )
    weight = smaller.get_parameter("second.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last) is expected
    assert original.get_parameter("second.weight").is_contiguous()


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("kind", [Flattens, Views])
def test_a_distilled_network_has_the_format_of_the_compressed_one(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = kind().cuda().eval(), torch.randn(200, 3, 8, 8)
    start = interpress.compress(model, x, flops=0.4, progress=False)
    result = start.distill(steps=60, progress=False)
    assert result.network.distillation is not None
    assert result.network.distillation.kept
    assert all(weight.is_contiguous() for weight in result.model.parameters())

"""Which layers can become two."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.members import build
from torch import Tensor, nn

from interpress import find_spaces
from interpress.graph.capture import capture
from interpress.lowrank.layers import FactorableLayer, factorable_layers

X = torch.randn(4, 8)


def names(model: nn.Module, example: object = X, exclude: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the layers of a model that can become two."""
    return [layer.name for layer in factorable_layers(capture(model.eval(), example), exclude)]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))


def test_ordinary_layers_can() -> None:
    assert names(mlp()) == ["0", "2", "4"]


def test_what_the_user_excludes_stays_whole() -> None:
    assert names(mlp(), exclude=("2",)) == ["0", "4"]
    assert names(nn.Sequential(mlp(), mlp()[:0]), exclude=("0.*",)) == []


def test_rows_are_counted_per_captured_example() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.Flatten(), nn.Linear(6 * 9, 4)).eval()
    for batch in (5, 1):  # a batch of one is doubled for the capture
        layers = factorable_layers(capture(model, torch.randn(batch, 3, 7, 7)))
        assert [layer.positions for layer in layers] == [9 * batch, batch]


class Own(nn.Linear):
    """A linear layer with code of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class ReadsWeight(nn.Module):
    """Computes with the weight of a layer, past its module."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.linear(x, self.layer.weight, self.layer.bias))


class AsksForDtype(ReadsWeight):
    """Calls the layer, but also looks at its weight, as T5 of transformers does."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(x.to(self.layer.weight.dtype)))


class Twice(ReadsWeight):
    """Calls the layer twice."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.layer(x)))


class Tied(ReadsWeight):
    """The second layer has the weight of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(8, 8)
        self.other.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.other(x))


class TwoNames(ReadsWeight):
    """The layer has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.alias = self.layer

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.alias(x))


class Circular(nn.Module):
    """Pads in a way that a thin convolution would not, and has groups."""

    def __init__(self) -> None:
        super().__init__()
        self.circular = nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular")
        self.grouped = nn.Conv2d(8, 8, 3, groups=2)
        self.transposed = nn.ConvTranspose2d(8, 4, 3)
        self.plain = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.transposed(self.grouped(self.circular(x))))


@pytest.mark.parametrize("kind", [ReadsWeight, AsksForDtype, Twice, Tied, TwoNames])
def test_a_layer_that_is_read_in_another_way_stays_whole(kind: type[nn.Module]) -> None:
    assert names(kind()) == ["last"]


def test_unusual_layers_stay_whole() -> None:
    assert names(nn.Sequential(Own(8, 8), nn.Linear(8, 4))) == ["1"]
    assert names(Circular(), torch.randn(2, 4, 6, 6)) == ["plain"]
    hooked = mlp()
    hooked[2].register_forward_hook(lambda module, args, output: 2 * output)
    assert names(hooked) == ["0", "4"]
    own = mlp()
    own[0].forward = lambda x: nn.functional.linear(x, own[0].weight)  # type: ignore[method-assign]
    assert names(own) == ["2", "4"]


def test_attention_reads_its_output_layer_past_the_module() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.inner(x, x, x, need_weights=False)[0])

    assert names(Attention(), torch.randn(2, 5, 8)) == ["last"]


def test_nothing_of_the_model_changes() -> None:
    model = mlp().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    factorable_layers(capture(model, X))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["vgg", "shared_weights", "vit"])
@pytest.mark.filterwarnings("ignore")
def test_networks_of_the_zoo(name: str) -> None:
    model, example = build(name)
    found: list[FactorableLayer] = factorable_layers(find_spaces(model, example).program)
    expected = {"vgg": 8, "shared_weights": 2, "vit": 10}
    assert len(found) == expected[name]

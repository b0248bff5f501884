"""Two thin layers in the place of one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.linalg.low_rank import Factors
from interpress.surgery.thin_layers import (
    factored_copy,
    multiplied_copy,
    thin_pair,
    with_thin_layers,
)

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 5), (7, 6)),
    "linear without bias": (nn.Linear(6, 5, bias=False), (2, 3, 6)),
    "conv1d": (nn.Conv1d(3, 5, 4, stride=2, padding=1), (2, 3, 11)),
    "conv2d": (nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
               (2, 3, 9, 8)),
    "conv2d, same": (nn.Conv2d(3, 5, 3, padding="same", bias=False), (2, 3, 6, 6)),
    "conv3d": (nn.Conv3d(2, 4, 2, padding=1), (2, 2, 4, 4, 4)),
}  # fmt: skip


def _factors(module: nn.Module, rank: int) -> Factors:
    weight: Tensor = module.weight  # type: ignore[assignment]
    outputs, inputs = len(weight), weight[0].numel()
    return Factors(torch.randn(outputs, rank), torch.randn(rank, inputs))


@pytest.mark.parametrize("name", LAYERS)
def test_two_layers_are_one_with_the_product_as_weight(name: str) -> None:
    torch.manual_seed(0)
    module, shape = LAYERS[name]
    model = nn.Sequential(module).double()
    factors = {"0": _factors(module, 3)}
    thin, whole = factored_copy(model, factors), multiplied_copy(model, factors)
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(thin(x), whole(x), atol=1e-12, rtol=1e-12)
    assert type(whole[0]) is type(module)
    assert [type(part) for part in thin[0]] == [type(module)] * 2
    assert thin[0][0].bias is None
    assert (thin[0][1].bias is None) == (module.bias is None)
    assert set(thin.state_dict()) >= {"0.0.weight", "0.1.weight"}


def test_the_model_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).train()
    model[0].weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    thin = factored_copy(model, {"0": _factors(model[0], 2)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert type(model[0]) is nn.Linear
    assert not thin[0][0].weight.requires_grad
    assert thin[2].weight.requires_grad
    assert thin[0][1].training
    thin[2].weight.data.zero_()
    assert not torch.equal(model[2].weight, thin[2].weight)


def test_copies_for_loading_have_the_shapes_of_the_ranks() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(6, 5)).bfloat16()
    thin = with_thin_layers(model, {"0": 2, "1": 4})
    assert thin[0][0].weight.shape == (2, 3, 3, 3)
    assert thin[0][1].weight.shape == (8, 2, 1, 1)
    assert thin[1][0].weight.shape == (4, 6)
    assert {parameter.dtype for parameter in thin.parameters()} == {torch.bfloat16}


def test_a_pair_is_where_its_module_is() -> None:
    pair = thin_pair(nn.Linear(6, 5, device="meta", dtype=torch.float64), 2)
    assert {(p.device.type, p.dtype) for p in pair.parameters()} == {("meta", torch.float64)}

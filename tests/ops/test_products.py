from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.between import freezes, linear, made_by_first, shrinks
from torch.utils.flop_counter import FlopCounterMode

import interpress

W = {"w": torch.randn(7, 12) / 3}


@pytest.mark.parametrize(
    "middle",
    [
        lambda m, h: F.linear(h, m.w),
        lambda m, h: h @ m.w.T,
        lambda m, h: torch.matmul(h, m.w.t()),
        lambda m, h: torch.bmm(h, m.w.T.expand(h.shape[0], -1, -1)),
        lambda m, h: torch.einsum("bni,oi->bno", h, m.w),
        lambda m, h: torch.einsum("...i,oi->...o", h, 2 * m.w),
        lambda m, h: torch.einsum("oi,bni", m.w, h),
        lambda m, h: (m.w @ h.mT).mT,
        lambda m, h: torch.addmm(h.new_zeros(7), h.flatten(0, 1), m.w.T).unflatten(0, (3, 6)),
        lambda m, h: torch.baddbmm(h.new_zeros(1, 1, 7), h, m.w.T.expand(3, -1, -1)),
    ],
)
def test_products_with_a_weight(middle) -> None:
    spaces = shrinks(linear(lambda m, h: middle(m, h).relu(), out=7, **W), 12)
    assert "w" in made_by_first(spaces).consumers


def test_data_products_over_tokens_leave_channels_alone() -> None:
    shrinks(linear(lambda _, h: torch.softmax(h.new_ones(6, 6), -1) @ h), 12)


def test_a_product_with_itself_freezes() -> None:
    freezes(linear(lambda _, h: h @ h.mT @ h), "selected and absorb T")


def test_three_operands_freeze() -> None:
    case = linear(lambda m, h: torch.einsum("bni,oi,o->bno", h, m.w, m.w[:, 0]), out=7, **W)
    freezes(case, "is an einsum of three or more operands")


def test_computed_weights_freeze() -> None:
    freezes(linear(lambda m, h: F.linear(h.relu(), m.w.tanh()), out=7, **W), "stands between it")


def test_a_weight_with_another_use_freezes() -> None:
    case = linear(lambda m, h: F.linear(h.relu() * m.w[0].tanh(), m.w), out=7, **W)
    freezes(case, "also uses the weight that would absorb T")


def test_fused_experts_are_listed_as_frozen_and_their_cost_counts() -> None:
    """A token costs what its experts cost, and every expert is left whole, with the reason."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
        num_experts_per_tok=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config).eval()
    tokens = torch.randint(5, 96, (4, 9))
    spaces = interpress.find_spaces(model, tokens, progress=False)
    frozen = {space.name: space.frozen for space in spaces.frozen if "experts" in space.name}
    assert sorted(frozen) == [
        "model.layers.0.mlp.experts.down_proj",
        "model.layers.0.mlp.experts.gate_up_proj",
    ]
    assert all("fused experts are left whole" in str(reason) for reason in frozen.values())
    of_experts = 2 * 2 * (48 * 160 + 80 * 48)  # per token: two experts, two per multiply-add
    rest = 2 * (48 * 48 * 2 + 48 * 24 * 2 + 48 * 4 + 48 * 96) + 2 * 2 * 9 * 48
    assert spaces.cost.meter("flops").total({}) == tokens.numel() * (of_experts + rest)


@pytest.mark.parametrize("equation", ["bi,ij,jk->bk", "bi,ij,ik->bjk", "bi,ij,kj->bk"])
def test_flops_of_three_operands_are_those_of_torch(equation: str) -> None:
    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.U, self.V = (torch.nn.Parameter(torch.randn(8, 8)) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum(equation, x, self.U, self.V)

    model, x = Chain(), torch.randn(4, 8)
    with FlopCounterMode(display=False) as counted:
        model(x)
    assert interpress.find_spaces(model, x).cost().flops == counted.get_total_flops()

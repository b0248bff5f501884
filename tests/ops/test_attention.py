from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.zoo.checks import counted_flops, difference, halved, interpolations, plant
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink


class Attend(nn.Module):
    """Separate projections; `kv_heads` key and value heads serve all query heads."""

    def __init__(self, heads: int = 4, kv_heads: int = 4, how: str = "fused") -> None:
        super().__init__()
        self.heads, self.kv_heads, self.how = heads, kv_heads, how
        self.q, self.k = nn.Linear(10, heads * 6), nn.Linear(10, kv_heads * 6)
        self.v, self.o = nn.Linear(10, kv_heads * 5), nn.Linear(heads * 5, 10)
        self.slope = nn.Parameter(torch.randn(heads, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (f(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for f in (self.k, self.v))
        if self.how == "fused":
            grouped = self.heads != self.kv_heads
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)
        else:
            times = self.heads // self.kv_heads
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            scores = q @ k.mT / q.shape[-1] ** 0.5
            y = (scores * self.slope.tanh()).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2))


def exact(model: nn.Module, x: Tensor) -> Spaces:
    spaces = find_spaces(model, x)
    for names in ([s.name for s in spaces.shrinkable], *[[s.name] for s in spaces.shrinkable]):
        kept = {name: halved(spaces[name], seed=2) for name in names}
        T = random_interpolations(Cut(spaces, kept))
        assert prove(spaces, Cut(spaces, kept, T), shrink(spaces, kept, T))
        widths = {name: len(index) for name, index in kept.items()}
        assert spaces.cost(widths).flops == counted_flops(shrink(spaces, kept), x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kept = {s.name: halved(s, seed=3) for s in spaces.shrinkable}
    plant(spaces, kept)
    T = interpolations(spaces, Cut(spaces, kept))
    assert difference(shrink(spaces, kept, T), model, x) < 1e-9
    model.load_state_dict(before)
    return spaces


@pytest.mark.parametrize("how", ["fused", "written out"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_head_dims_and_whole_heads(how: str, kv_heads: int) -> None:
    torch.manual_seed(0)
    model = Attend(4, kv_heads, how).double()
    spaces = exact(model, torch.randn(3, 7, 10, dtype=torch.float64))
    found = {space.name: (space.size, space.step) for space in spaces.shrinkable}
    expected = {"k": (6 * kv_heads, kv_heads), "v": (5 * kv_heads, kv_heads)}
    if kv_heads > 1:
        expected["k:heads"] = (kv_heads, 1)
    first = "q" if how == "fused" else "slope"
    if kv_heads == 2:  # two query heads per key and value: one of each group may go
        expected[f"{first}:heads-per-group"] = (4, 2)
    elif kv_heads == 1:  # one group
        expected[f"{first}:heads"] = (4, 1)
    assert found == expected


def test_cross_attention_and_mask() -> None:
    class Cross(Attend):
        def forward(self, x: Tensor) -> Tensor:
            x, y = x[:, :3], x[:, 3:]
            q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.k, self.v))
            mask = torch.ones(3, 4, dtype=torch.bool).tril()
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
            return self.o(y.transpose(1, 2).flatten(2))

    spaces = exact(Cross().double(), torch.randn(3, 7, 10, dtype=torch.float64))
    assert {"k", "v", "k:heads"} == {space.name for space in spaces.shrinkable}


def test_rotary_embedding_freezes_query_and_key_only() -> None:
    class Rotary(Attend):
        def forward(self, x: Tensor) -> Tensor:
            angle = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.1, 0.01])
            cos, sin = (torch.cat([f(angle)] * 2, -1).to(x.dtype) for f in (torch.cos, torch.sin))

            def turn(t: Tensor) -> Tensor:
                a, b = t.chunk(2, -1)
                return t * cos + torch.cat([-b, a], -1) * sin

            q = turn(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))
            k = turn(self.k(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))
            v = self.v(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.o(y.transpose(1, 2).flatten(2))

    spaces = exact(Rotary().double(), torch.randn(3, 7, 10, dtype=torch.float64))
    assert any(space.heads for space in spaces.shrinkable)
    assert spaces["v"].frozen is None
    assert all(
        "q" in s.producers[0] or "k" in s.producers[0] or "o." in s.producers[0]
        for s in spaces.frozen
    )

"""Heads that share a key and a value are members of groups: two spaces on the same weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinks_every_way
from tests.zoo.checks import difference, interpolations, plant
from torch import Tensor, nn

import interpress
from interpress import find_spaces
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.shrink import shrink

HOW = ["fused", "expand", "interleave"]


class Attention(nn.Module):
    """Query heads that share `kv` keys and values; `members` each."""

    def __init__(self, kv: int, members: int, how: str) -> None:
        super().__init__()
        self.kv_heads, self.repeats, self.how = kv, members, how
        self.q, self.o = nn.Linear(10, kv * members * 4), nn.Linear(kv * members * 4, 10)
        self.k, self.v = nn.Linear(10, kv * 4), nn.Linear(10, kv * 4)

    def repeated(self, x: Tensor) -> Tensor:
        if self.how == "interleave":
            return x.repeat_interleave(self.repeats, 1)
        b, h, n, d = x.shape
        return x[:, :, None].expand(b, h, self.repeats, n, d).reshape(b, h * self.repeats, n, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.how == "fused":
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, self.repeated(k), self.repeated(v))
        return self.o(y.transpose(1, 2).flatten(2))


def attention(kv: int, members: int, how: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Attention(kv, members, how).double(), torch.randn(3, 7, 10, dtype=torch.float64)


def heads_of(spaces: Spaces) -> dict[str, tuple[int, int, bool]]:
    return {s.name: (s.size, s.step, s.in_groups) for s in spaces.shrinkable if s.heads}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("kv", "members"), [(3, 2), (2, 3), (2, 2)])
def test_groups_and_their_members_are_two_spaces(kv: int, members: int, how: str) -> None:
    spaces = shrinks_every_way(*attention(kv, members, how))
    in_groups, groups = heads_of(spaces).values()
    assert in_groups == (kv * members, kv, True)
    assert groups == (kv, 1, False)
    space = next(s for s in spaces.shrinkable if s.in_groups)
    assert space.cells.tolist() == torch.arange(kv).repeat_interleave(members).tolist()


@pytest.mark.parametrize("how", HOW)
def test_one_key_for_all_heads_makes_one_space(how: str) -> None:
    spaces = shrinks_every_way(*attention(1, 4, how))
    assert list(heads_of(spaces).values()) == [(4, 1, False)]


def test_one_head_per_key_makes_one_space() -> None:
    assert list(heads_of(find_spaces(*attention(4, 1, "fused"))).values()) == [(4, 1, False)]


@pytest.mark.parametrize("how", HOW)
def test_other_members_of_every_group_are_dropped_exactly(how: str) -> None:
    model, x = attention(3, 3, how)
    spaces = find_spaces(model, x)
    name = next(s.name for s in spaces.shrinkable if s.in_groups)
    kept = {name: torch.tensor([0, 2, 3, 4, 7, 8])}  # of each group, two others
    plant(spaces, kept)
    T = interpolations(spaces, Cut(spaces, kept))
    small = shrink(spaces, kept, T)
    assert (small.q.out_features, small.k.out_features, small.o.in_features) == (24, 12, 24)  # type: ignore[union-attr]
    assert difference(small, model, x) < 1e-9


def test_groups_must_keep_equally_many() -> None:
    spaces = find_spaces(*attention(3, 3, "fused"))
    name = next(s.name for s in spaces.shrinkable if s.in_groups)
    with pytest.raises(interpress.ArgumentError, match="the same share"):
        shrink(spaces, {name: [0, 1, 2, 3, 4, 6]})


def test_both_spaces_shrink_the_same_dim() -> None:
    model, x = attention(3, 2, "expand")
    spaces = find_spaces(model, x)
    in_groups, groups = heads_of(spaces)
    whole = spaces.cost().parameters
    per_head = 10 * 4 * 2 + 4  # rows and bias of q, columns of o
    per_group = 2 * (10 * 4 + 4)  # rows and biases of k and v
    assert whole - spaces.cost({in_groups: 3}).parameters == 3 * per_head
    assert whole - spaces.cost({groups: 2}).parameters == 2 * per_head + per_group
    both = spaces.cost({in_groups: 3, groups: 2}).parameters
    assert whole - both == 4 * per_head + per_group


def test_what_freezes_the_queries_freezes_the_members_only() -> None:
    model, x = attention(2, 2, "expand")
    spaces = find_spaces(model, x, exclude=["k"])
    assert list(heads_of(spaces).values()) == [(4, 2, True)]
    spaces = find_spaces(model, x, exclude=["q"])
    assert heads_of(spaces) == {}


def test_repetitions_that_are_no_heads_are_removed_together() -> None:
    class Repeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(5, 12), nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x).unflatten(-1, (4, 3))  # (N, 4, 3)
            return self.b(y.relu().repeat_interleave(2, 1).flatten(1))

    spaces = spaces_of(capture(Repeats(), torch.randn(6, 5)))
    (copies,) = spaces.trace.copies
    assert not any(space.heads for space in spaces)
    labels = spaces.membership.levels[0].space[copies.copied]
    assert torch.equal(labels[0], labels[1])
    shrinks_every_way(Repeats(), torch.randn(6, 5))

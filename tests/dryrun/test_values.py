"""Networks and uses that once gave a wrong answer, or none."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from tests.zoo.checks import counted_flops, difference, halved, interpolations, plant
from torch import Tensor, nn

from interpress import (
    ArgumentError,
    DataError,
    SurgeryError,
    find_spaces,
    interpolative_decomposition,
)
from interpress.dryrun.inputs import random_interpolations
from interpress.graph.executor import Executor
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import measure, prove
from interpress.surgery.shrink import shrink


def every_way(model: nn.Module, x: Tensor) -> Spaces:
    """All shrinkable spaces together, and each alone, are exact and counted right."""
    model, x = model.double(), x.double() if x.is_floating_point() else x
    before = {name: value.clone() for name, value in model.state_dict().items()}
    spaces = find_spaces(model, x)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    names = [space.name for space in spaces.shrinkable]
    for chosen in [names, *([name] for name in names)]:
        kept = {name: halved(spaces[name], seed=4) for name in chosen}
        T = random_interpolations(Cut(spaces, kept))
        assert prove(spaces, Cut(spaces, kept, T), shrink(spaces, kept, T)), chosen
        widths = {name: len(index) for name, index in kept.items()}
        assert spaces.cost(widths).flops == counted_flops(shrink(spaces, kept), x)
    kept = {name: halved(spaces[name], seed=5) for name in names}
    plant(spaces, kept)
    T = interpolations(spaces, Cut(spaces, kept))
    assert difference(shrink(spaces, kept, T), model, x) < 1e-9
    model.load_state_dict(before)
    return spaces


def shrinkable(spaces: Spaces) -> set[str]:
    return {space.name for space in spaces.shrinkable}


def test_kept_in_pivot_order_is_refused_with_the_remedy() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = find_spaces(model, torch.randn(50, 6))
    (tap,) = spaces["0"].taps
    found = interpolative_decomposition(measure(spaces)[tap], k=4)
    order = found.kept.argsort()
    assert not torch.equal(order, torch.arange(4))
    with pytest.raises(ArgumentError, match=r"not in ascending order.*kept\[order\]"):
        shrink(spaces, {"0": found.kept}, {tap: found.T})
    assert shrink(spaces, {"0": found.kept[order]}, {tap: found.T[order]})
    mask = torch.zeros(8, dtype=torch.bool)
    mask[found.kept] = True
    assert shrink(spaces, {"0": mask}, {tap: found.T[order]})
    with pytest.raises(ArgumentError, match="pass whole numbers, or a mask of 8"):
        shrink(spaces, {"0": [0.5, 1.7]})
    with pytest.raises(ArgumentError, match="loses no channel"):
        shrink(spaces, {}, {tap: torch.eye(8)})


class Attend(nn.Module):
    """Two attentions in one module that keeps one number of heads, or of dims, for both."""

    def __init__(self, heads: int, dims: int, by: str) -> None:
        super().__init__()
        self.number = heads if by == "heads" else dims
        self.by = by
        width = heads * dims
        self.labellings = nn.ModuleList(nn.Linear(8, width) for _ in range(6))
        self.o, self.p = nn.Linear(width, 8), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        def split(t: Tensor) -> Tensor:
            sizes = (self.number, -1) if self.by == "heads" else (-1, self.number)
            return t.unflatten(-1, sizes).transpose(1, 2)

        for at, out in ((0, self.o), (3, self.p)):
            q, k, v = (split(labelling(x)) for labelling in self.labellings[at : at + 3])
            x = x + out(
                F.scaled_dot_product_attention(q, k, v, scale=0.5).transpose(1, 2).flatten(2)
            )
        return x


@pytest.mark.parametrize("by", ["heads", "dims"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_one_number_for_two_attentions(count: int, by: str) -> None:
    torch.manual_seed(count)
    heads, dims = (count, 6) if by == "heads" else (3, count)
    every_way(Attend(heads, dims, by), torch.randn(3, 5, 8))


def test_spaces_that_hold_alone_but_not_together() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(4, 8)
            self.o, self.p = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x):
            a, b = self.a(x).relu(), self.b(x).relu()
            return (self.o(a) + self.p(b)) / max(a.shape[-1], b.shape[-1])

    assert len(every_way(Net(), torch.randn(5, 4)).shrinkable) <= 1


def test_decisions_are_proved_by_what_they_come_from() -> None:
    class Decide(nn.Module):
        def __init__(self, cheat: bool) -> None:
            super().__init__()
            self.a, self.o, self.cheat = nn.Linear(4, 12), nn.Linear(12, 3), cheat

        def forward(self, x):
            h = self.a(x).relu()
            if self.cheat:
                h = h / h.shape[-1] ** 0.5 + 1
            return self.o(h).argmax(-1)

    assert "cannot be proved" in str(find_spaces(Decide(True), torch.randn(3, 4))["a"].frozen)
    assert find_spaces(Decide(False), torch.randn(3, 4))["a"].frozen is None


def test_outputs_that_are_not_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[2].bias.fill_(float("nan"))
    with pytest.raises(DataError, match="holds NaN"):
        find_spaces(model, torch.randn(3, 4))


class Merged(nn.Module):
    """Heads merged with the batch, as older code does it."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 3
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2).reshape(b * self.heads, n, -1)
            for f in (self.q, self.k, self.v)
        )
        y = torch.bmm(torch.bmm(q * 0.4, k.transpose(1, 2)).softmax(-1), v)
        return self.o(y.view(b, self.heads, n, -1).transpose(1, 2).reshape(b, n, -1))


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_heads_merged_with_the_batch(batch: int) -> None:
    torch.manual_seed(0)
    spaces = every_way(Merged(), torch.randn(batch, 5, 12))
    assert shrinkable(spaces) == {"k", "v", "k:heads"}
    rows = {name: len(Z) for name, Z in measure(spaces, torch.randn(7, 5, 12).double()).items()}
    assert set(rows.values()) == {35}
    kept = {name: halved(spaces[name], seed=1) for name in ("k", "v", "k:heads")}
    T = random_interpolations(Cut(spaces, kept))
    cut = Cut(spaces, kept, T)
    assert prove(spaces, cut, shrink(spaces, kept, T), torch.randn(6, 5, 12).double())


def test_other_shapes_than_captured_are_refused() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 6)

        def forward(self, x):
            return torch.stack([self.a(x[i]) for i in range(x.shape[0])])

    spaces = find_spaces(Loop(), torch.randn(3, 4))
    with pytest.raises(
        DataError, match=r"has shape \(6, 4\), but the model was captured for \(3, 4"
    ):
        Executor(spaces.program).run(torch.randn(6, 4))
    pooled = nn.Sequential(nn.Conv1d(2, 4, 1), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(DataError, match=r"captured for \(any, 2, 5\)"):
        Executor(find_spaces(pooled, torch.randn(3, 2, 5)).program).run(torch.randn(3, 2, 6))


def test_freezing_reaches_shared_weights() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8, bias=False), nn.Linear(6, 8, bias=False)
            self.b.weight = self.a.weight
            self.alias, self.o = self.a, nn.Linear(8, 3)

        def forward(self, x):
            return self.o(self.a(x).relu() + self.b(-x).relu())

    for pattern in ("b", "b.weight", "alias", "a", "o"):
        spaces = find_spaces(Shared(), torch.randn(3, 6), exclude=[pattern])
        assert f"pattern {pattern!r}" in str(spaces["a"].frozen)
    with pytest.raises(ArgumentError, match="'' matches no module"):
        find_spaces(Shared(), torch.randn(3, 6), exclude=[""])


def test_buffers_that_a_forward_writes_come_back() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Linear(8, 3)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("average", torch.zeros(3))

        def forward(self, x):
            y = self.o(self.a(x).relu())
            self.calls.add_(1)
            self.average.mul_(0.9).add_(0.1 * y.detach().mean(0))
            return y

    assert shrinkable(every_way(Counting(), torch.randn(5, 4))) == {"a"}


def test_numbers_that_are_no_sizes_stay() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(5, 8), nn.Linear(8, 3)
            self.max_len, self.temperature, self.hidden_dim = 8, 8, 8

        def forward(self, x):
            return self.o(self.a(x).relu()) / self.temperature

    spaces = every_way(Net(), torch.randn(4, 5))
    small = shrink(spaces, {"a": [0, 4, 5]})
    assert (small.max_len, small.temperature, small.hidden_dim) == (8, 8, 3)


@pytest.mark.parametrize("layout", ["(d h)", "3 (d h)", "(h d)"])
def test_layouts_of_heads(layout: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d, self.heads = 6, 2
            self.qkv, self.o = nn.Linear(8, 36), nn.Linear(12, 8)

        def forward(self, x):
            b, n, _ = x.shape
            if layout == "3 (d h)":
                q, k, v = self.qkv(x).view(b, n, 3, self.d, self.heads).permute(2, 0, 4, 1, 3)
            else:
                sizes = (self.d, self.heads) if layout == "(d h)" else (self.heads, self.d)
                order = (0, 3, 1, 2) if layout == "(d h)" else (0, 2, 1, 3)
                q, k, v = (t.reshape(b, n, *sizes).permute(order) for t in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v)
            y = y.permute(0, 2, 1, 3) if layout == "(h d)" else y.permute(0, 2, 3, 1)
            return self.o(y.flatten(2))

    torch.manual_seed(0)
    assert shrinkable(every_way(Net(), torch.randn(3, 5, 8))) == {"qkv", "qkv:heads"}


def test_types_made_and_cast_inside() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            ones = torch.ones(x.shape[0], 1).to(x.dtype)
            steps = torch.linspace(0, 1, 8).sum().to(x.dtype)
            gate = torch.softmax(self.a(x).float(), 0).type_as(x)
            return self.o(torch.cat([self.b(x) * gate]) + ones @ ones.T @ self.b(x) * steps)

    model = Net()
    assert shrinkable(find_spaces(model, torch.randn(3, 4))) == {"a"}


def test_autocast_inside() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                h = self.b(self.a(x).relu())
            return self.o(h.float().relu())

    torch.manual_seed(0)
    spaces = find_spaces(Net(), torch.randn(16, 4))
    assert shrinkable(spaces) == {"a", "b"}
    assert spaces.cost().flops == 2 * 16 * (32 + 64 + 24)


def test_random_numbers_inside() -> None:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.mean, self.spread = (
                nn.Linear(6, 12),
                nn.Linear(12, 4),
                nn.Linear(12, 4),
            )
            self.decode, self.out = nn.Linear(4, 12), nn.Linear(12, 6)

        def forward(self, x):
            h = self.encode(x).relu()
            z = self.mean(h) + torch.randn(x.shape[0], 4, dtype=x.dtype) * self.spread(h).exp()
            return self.out(self.decode(z).relu())

    model, x = VAE(), torch.randn(3, 6)
    state = torch.get_rng_state()
    spaces = find_spaces(model, x)
    assert shrinkable(spaces) == {"encode", "decode"}
    assert torch.equal(state, torch.get_rng_state())


def test_a_model_that_cannot_be_copied_says_so() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model.lock = threading.Lock()
    with pytest.raises(
        SurgeryError, match=r"Sequential cannot be copied.*take what cannot be copied"
    ):
        find_spaces(model, torch.randn(3, 4))


def test_two_scales_in_one_network() -> None:
    class One(nn.Module):
        def __init__(self, stored: bool) -> None:
            super().__init__()
            self.heads, self.stored = 2, stored
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            q, k, v = (
                f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for f in (self.q, self.k, self.v)
            )
            scale = 0.5 if self.stored else k.shape[-1] ** -0.5
            y = (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v
            return x + self.o(y.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    model = nn.Sequential(One(True), One(False))
    spaces = every_way(model, torch.randn(3, 5, 8))
    assert {"0.k", "1.k", "0.v", "1.v"} <= shrinkable(spaces)


@pytest.mark.parametrize("how", ["sum", "softmax and sum", "amax"])
def test_branches_folded_into_one_dim(how: str) -> None:
    class Selective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 12), nn.Linear(6, 3)

        def forward(self, x):
            h = self.a(x).unflatten(-1, (2, -1))
            h = (
                h.amax(1)
                if how == "amax"
                else (h.softmax(1) * h if "soft" in how else h.relu()).sum(1)
            )
            return self.o(h)

    assert shrinkable(every_way(Selective(), torch.randn(5, 4))) == {"a"}


def test_norms_without_parameters_keep_their_numbers_true() -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 8, 1), nn.GroupNorm(8, 8, affine=False), nn.ReLU(), nn.Conv1d(8, 8, 1),
        nn.BatchNorm1d(8, affine=False, track_running_stats=False), nn.Conv1d(8, 3, 1),
    )  # fmt: skip
    spaces = every_way(model, torch.randn(3, 2, 5))
    small = shrink(spaces, {"0": [0, 3, 4], "3": [1, 2]})
    assert (small[1].num_channels, small[1].num_groups, small[4].num_features) == (3, 3, 2)


def test_layers_used_only_in_training_are_reported() -> None:
    class Aux(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o, self.aux = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 2)

        def forward(self, x):
            h = self.a(x).relu()
            return (self.o(h), self.aux(h)) if self.training else self.o(h)

    spaces = find_spaces(Aux(), torch.randn(3, 4))
    assert spaces.unused == ("aux.weight", "aux.bias")
    assert "aux.weight" in str(spaces)


@pytest.mark.parametrize(
    "middle",
    [
        lambda h: F.avg_pool1d(h[:, None], 3, 1, 1)[:, 0],
        lambda h: (h[:, :, None] * h[:, None]).flatten(1)[:, :8],
    ],
)
def test_nothing_vanishes_without_a_reason(middle) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.o(middle(self.a(x)))

    spaces = find_spaces(Net(), torch.randn(3, 4))
    assert any("a.weight" in space.producers and space.frozen for space in spaces)


def test_zeros_do_not_hide_mistakes() -> None:
    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 3)
            self.gamma = nn.Parameter(torch.zeros(4))
            nn.init.zeros_(self.o.weight)

        def forward(self, x):
            h = self.a(x).relu()
            return self.o(x + self.gamma * self.b(h / h.shape[-1]))

    spaces = find_spaces(Zero(), torch.randn(3, 4))
    assert "cannot be proved" in str(spaces["a"].frozen)


@pytest.mark.cuda
def test_devices_may_be_mixed() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU beside the CPU")

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 6).cuda()
            self.o = nn.Linear(6, 3)

        def forward(self, x):
            h = self.b(self.a(x).relu().to("cuda")).relu()
            return self.o(h.cpu())

    spaces = find_spaces(Split(), torch.randn(3, 4))
    assert shrinkable(spaces) == {"a", "b"}
    kept = {name: halved(spaces[name], seed=1) for name in ("a", "b")}
    small = shrink(spaces, kept, random_interpolations(Cut(spaces, kept)))
    assert small.b.weight.is_cuda
    assert not small.a.weight.is_cuda


def test_weak_signals_do_not_hide_mistakes() -> None:
    class Faint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(4)))
            self.a, self.d = nn.Linear(6, 10, bias=False), nn.Linear(10, 6, bias=False)
            self.f = nn.Linear(6, 3)
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=0.002)

        def forward(self, x):
            y = self.a(self.before(x)).relu()
            return self.f(x + self.d(y * y.shape[-1] ** -0.5))

    assert "cannot be proved" in str(find_spaces(Faint(), torch.randn(3, 6))["a"].frozen)


def test_a_result_that_does_not_run_is_an_error() -> None:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)

        def forward(self, x):
            return self.o(F.adaptive_avg_pool2d(self.a(x), 1).squeeze())

    spaces = find_spaces(Squeeze(), torch.randn(5, 3, 4, 4))
    assert shrink(spaces, {"a": [1, 2]})
    with pytest.raises(SurgeryError, match=r"does not run \(RuntimeError.*keep more channels"):
        shrink(spaces, {"a": [1]})


def test_a_weight_read_in_parts() -> None:
    class Parts(nn.Module):
        def __init__(self, overlap: bool) -> None:
            super().__init__()
            self.a, self.b, self.d = nn.Linear(4, 5), nn.Linear(4, 7), nn.Linear(12, 3)
            self.overlap = overlap

        def forward(self, x):
            a, b = self.a(x).relu(), self.b(x).relu()
            if self.overlap:
                whole = torch.cat([a, b], -1)
                return self.d(whole) + F.linear(whole[:, :4], self.d.weight[:, :4])
            return F.linear(a, self.d.weight[:, :5]) + F.linear(b, self.d.weight[:, 5:])

    every_way(Parts(False), torch.randn(3, 4))
    assert not every_way(Parts(True), torch.randn(3, 4)).shrinkable


def test_dropout_in_place_and_bags_of_embeddings() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(inplace=True), nn.Linear(8, 3))
    assert shrinkable(every_way(model, torch.randn(3, 4))) == {"0"}
    bag = nn.Sequential(nn.EmbeddingBag(9, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = find_spaces(bag, torch.randint(0, 9, (3, 5)))
    assert any("aten.embedding_bag at 0" in str(space.frozen) for space in spaces)

"""The projection identity: smaller networks are compared with the projected original."""

from __future__ import annotations

import pytest
import torch
from tests.surgery.every_way import shrinkable_names
from torch import Tensor, nn

from interpress import SurgeryError, find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.graph import snapshot
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces
from interpress.surgery import cut as cut_module
from interpress.surgery import projection_identity
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import Proof, check, measure_taps, projected, prove
from interpress.surgery.weights import shrunk_copy

KEPT = {"0": torch.tensor([1, 4, 6])}
TAP = "2.weight reads linear_1"


def spaces_of_mlp() -> Spaces:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    return find_spaces(model, torch.randn(40, 6, dtype=torch.float64))


def test_taps_are_what_the_consumer_reads() -> None:
    spaces = spaces_of_mlp()
    model, x = spaces.program.model, spaces.program.example.args[0]
    assert torch.equal(measure_taps(spaces)[TAP], model[1](model[0](x)))
    assert torch.equal(measure_taps(spaces, x[:3], taps=[TAP])[TAP], model[1](model[0](x[:3])))


def test_the_projected_network_by_hand() -> None:
    spaces = spaces_of_mlp()
    model, x = spaces.program.model, spaces.program.example.args[0]
    T = torch.randn(3, 8, dtype=torch.float64)
    Z = model[1](model[0](x))
    (output,) = projected(spaces, Cut(spaces, KEPT, {TAP: T}), x)
    torch.testing.assert_close(output, model[2](Z[:, KEPT["0"]] @ T))


def test_a_proof_is_true_up_to_its_tolerance() -> None:
    assert Proof(1e-10, 1e-9)
    assert not Proof(1e-8, 1e-9)


def test_a_changed_network_is_not_proved() -> None:
    spaces = spaces_of_mlp()
    cut = Cut(spaces, KEPT, random_interpolations(Cut(spaces, KEPT)))
    small = shrunk_copy(cut)
    assert check(spaces, cut, small).difference < 1e-12
    with torch.no_grad():
        small[2].bias.add_(1e-6)
    with pytest.raises(SurgeryError, match=r"differs from the projected one by .* at most 1e-09"):
        check(spaces, cut, small)
    with torch.no_grad():
        small[2].bias.sub_(1e-6)
        small[2].weight.add_(1e-6)
    with pytest.raises(SurgeryError, match=r"2.weight of the smaller network differs from the wei"):
        check(spaces, cut, small)


@pytest.mark.parametrize("large", [False, True])
def test_float32_networks_are_compared_before_their_weights_are_rounded(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of a large network are cast, and computed again, one module at a time."""
    if large:
        monkeypatch.setattr(projection_identity, "_CAST_AT_ONCE", 0)
        monkeypatch.setattr(snapshot, "_COPIED", 0)
        monkeypatch.setattr(cut_module, "_KEPT_BYTES", 0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = find_spaces(model, torch.randn(40, 6))
    cut = Cut(spaces, KEPT, random_interpolations(Cut(spaces, KEPT)))
    small = shrunk_copy(cut)
    assert prove(spaces, cut, small).difference < 1e-12
    assert small[2].weight.dtype == torch.float32
    assert not small[2]._forward_hooks
    assert torch.equal(small[2].weight, cut.weights["2.weight"].float())


def test_decisions_are_proved_by_their_scores() -> None:
    class Decide(nn.Module):
        def __init__(self, depends_on_width: bool) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 12), nn.Linear(12, 3)
            self.depends_on_width = depends_on_width

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x).relu()
            if self.depends_on_width:
                h = h / h.shape[-1] ** 0.5 + 1
            return self.o(h).argmax(-1)

    assert "cannot be proved" in str(find_spaces(Decide(True), torch.randn(3, 4))["a"].frozen)
    assert find_spaces(Decide(False), torch.randn(3, 4))["a"].frozen is None


def test_dtypes_that_the_model_names() -> None:
    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            ones = torch.ones(x.shape[0], 1).to(x.dtype)
            steps = torch.linspace(0, 1, 8).sum().to(x.dtype)
            gate = torch.softmax(self.a(x).float(), 0).type_as(x)
            return self.o(torch.cat([self.b(x) * gate]) + ones @ ones.T @ self.b(x) * steps)

    assert shrinkable_names(find_spaces(Casts(), torch.randn(3, 4))) == {"a"}


def test_autocast_in_the_model() -> None:
    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                h = self.b(self.a(x).relu())
            return self.o(h.float().relu())

    torch.manual_seed(0)
    spaces = find_spaces(Autocast(), torch.randn(16, 4))
    assert shrinkable_names(spaces) == {"a", "b"}
    assert spaces.cost().flops == 2 * 16 * (32 + 64 + 24)


def test_random_numbers_in_the_model() -> None:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.mean = nn.Linear(6, 12), nn.Linear(12, 4)
            self.spread, self.decode = nn.Linear(12, 4), nn.Linear(4, 12)
            self.out = nn.Linear(12, 6)

        def forward(self, x: Tensor) -> Tensor:
            h = self.encode(x).relu()
            z = self.mean(h) + torch.randn(x.shape[0], 4, dtype=x.dtype) * self.spread(h).exp()
            return self.out(self.decode(z).relu())

    model, x = VAE(), torch.randn(3, 6)
    state = torch.get_rng_state()
    spaces = find_spaces(model, x)
    assert shrinkable_names(spaces) == {"encode", "decode"}
    assert torch.equal(state, torch.get_rng_state())


class Amplifies(nn.Module):
    """Casts in every layer, and amplifies the rounding of its casts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(24))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for layer in self.layers:
            h = torch.sin(4 * layer(h.to(torch.float32).to(x.dtype)))
        return self.last(h)


def test_the_rounding_of_casts_is_allowed_for_and_no_more() -> None:
    torch.manual_seed(0)
    spaces = spaces_of(capture(Amplifies(), torch.randn(4, 6)))
    name = spaces.shrinkable[0].name
    cut = Cut(spaces, {name: torch.arange(0, spaces[name].size, 2)})
    small = shrunk_copy(cut)
    proof = prove(spaces, cut, small)
    assert 1e-4 < proof.difference <= proof.tolerance <= 3e-2
    bias = small.get_parameter("last.bias")
    with torch.no_grad():
        bias.add_(0.05)
    assert not prove(spaces, cut, small)

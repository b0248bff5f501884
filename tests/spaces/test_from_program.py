"""Spaces have names, roles, and reasons to be frozen; excluded modules do not change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.zoo import residual
from tests.zoo.checks import halved
from torch import Tensor, nn

from interpress import ArgumentError, find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink


def network() -> nn.Module:
    torch.manual_seed(0)
    return residual.ResNet(residual.BasicBlock, (2, 2))


IMAGES = torch.randn(3, 3, 16, 16)


@pytest.mark.parametrize("pattern", ["layers.1", "layers.1.body.*", "*.project", "head", "stem.0"])
def test_an_excluded_module_does_not_change(pattern: str) -> None:
    model = network()
    spaces = find_spaces(model, IMAGES, exclude=[pattern])
    assert any(f"is excluded by the pattern {pattern!r}" in str(s.frozen) for s in spaces.frozen)
    assert spaces.shrinkable
    kept = {s.name: halved(s, seed=1) for s in spaces.shrinkable}
    T = random_interpolations(Cut(spaces, kept))
    small = shrink(spaces, kept, T)
    assert prove(spaces, Cut(spaces, kept, T), small)
    excluded = [
        (name, value)
        for name, value in model.state_dict().items()
        if name.startswith(pattern.rstrip(".*")) or (pattern == "*.project" and ".project." in name)
    ]
    assert excluded
    assert all(torch.equal(small.state_dict()[name], value) for name, value in excluded)


def test_one_pattern_may_be_a_plain_string() -> None:
    spaces = spaces_of(capture(network(), IMAGES), "head")
    assert "head" in str(spaces["layers.2.body.2.0"].frozen)


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    program = capture(network(), IMAGES)
    with pytest.raises(ArgumentError, match=r"'layer1.\*' matches no module; module names look"):
        spaces_of(program, ["layer1.*"])
    with pytest.raises(ArgumentError, match="'' matches no module"):
        spaces_of(program, [""])


def test_exclusion_reaches_shared_weights() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8, bias=False), nn.Linear(6, 8, bias=False)
            self.b.weight = self.a.weight
            self.alias, self.o = self.a, nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(self.a(x).relu() + self.b(-x).relu())

    program = capture(Shared(), torch.randn(3, 6))
    assert spaces_of(program)["a"].frozen is None
    for pattern in ("b", "b.weight", "alias", "a", "o"):
        assert f"pattern {pattern!r}" in str(spaces_of(program, [pattern])["a"].frozen)


def test_every_role_is_named() -> None:
    space = spaces_of(capture(network(), IMAGES))["layers.0.body.0.0"]
    assert space.producers == ("layers.0.body.0.0.weight",)
    assert set(space.carriers) >= {
        f"layers.0.body.0.1.{n}" for n in ("weight", "bias", "running_var")
    }
    assert space.consumers == ("layers.0.body.2.0.weight",)
    assert len(space.taps) == 1


@pytest.mark.parametrize(
    "middle",
    [
        lambda h: F.avg_pool1d(h[:, None], 3, 1, 1)[:, 0],
        lambda h: (h[:, :, None] * h[:, None]).flatten(1)[:, :8],
    ],
)
def test_a_space_that_cannot_shrink_is_listed_with_a_reason(middle) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(middle(self.a(x)))

    spaces = find_spaces(Net(), torch.randn(3, 4))
    assert any("a.weight" in space.producers and space.frozen for space in spaces)


def test_an_operator_without_a_rule_is_named() -> None:
    bag = nn.Sequential(nn.EmbeddingBag(9, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = spaces_of(capture(bag, torch.randint(0, 9, (3, 5))))
    assert any("aten.embedding_bag at 0" in str(space.frozen) for space in spaces)


def test_finding_spaces_does_not_change_the_random_state() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    program = capture(model, torch.randn(3, 4))
    state = torch.get_rng_state()
    spaces_of(program)
    assert torch.equal(state, torch.get_rng_state())

"""Every network of the zoo: its spaces, surgery, proof and cost, training, and a second surgery."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from tests.zoo.checks import (
    counted_flops,
    difference,
    halved,
    interpolations,
    parameter_count,
    plant,
)
from tests.zoo.members import ZOO, build
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink

pytest.importorskip("transformers", reason="the zoo's language models are built from its configs")


@dataclass
class Case:
    """A network of the zoo with its spaces, and its weights as they were built."""

    model: nn.Module
    example: Any
    before: dict[str, Tensor]
    spaces: Spaces


@cache
def _case(name: str) -> Case:
    model, example = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    return Case(model, example, before, find_spaces(model, example))


def fresh(name: str) -> Case:
    """Return the case with its weights as they were built."""
    case = _case(name)
    case.model.load_state_dict(case.before)
    return case


every = pytest.mark.parametrize("name", list(ZOO))


@every
def test_what_must_shrink_can(name: str) -> None:
    case, member = fresh(name), ZOO[name]
    sizes = {space.name: space.size for space in case.spaces.shrinkable}
    assert member.widths.items() <= sizes.items(), str(case.spaces)
    for reason in member.frozen:
        assert any(reason in str(space.frozen) for space in case.spaces.frozen), str(case.spaces)
    assert all(space.frozen is None or len(space.frozen) > 8 for space in case.spaces)


@every
def test_planted_redundancy_is_removed_exactly(name: str) -> None:
    case = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(case.spaces.shrinkable)}
    plant(case.spaces, kept)
    T = interpolations(case.spaces, Cut(case.spaces, kept))
    tolerance = {torch.float64: 1e-9, torch.bfloat16: 2e-2}[ZOO[name].dtype]
    small = shrink(case.spaces, kept, T)
    assert parameter_count(small) < parameter_count(case.model)
    assert difference(small, case.model, case.example) < tolerance
    if tolerance < 1e-8:
        case.model.float()
        try:
            example = Example.of(case.example).map(
                lambda t: t.float() if t.is_floating_point() else t
            )
            assert difference(shrink(case.spaces, kept, T), case.model, example) < 1e-4
        finally:
            case.model.double()


@every
def test_projection_identity_at_random_widths(name: str) -> None:
    case = fresh(name)
    generator = torch.Generator().manual_seed(3)
    kept = {}
    for index, space in enumerate(case.spaces.shrinkable):
        if torch.rand(1, generator=generator) < 0.7:
            kept[space.name] = halved(space, seed=10 + index)
    T = random_interpolations(Cut(case.spaces, kept), seed=5)
    cut = Cut(case.spaces, kept, T)
    proof = prove(case.spaces, cut, shrink(case.spaces, kept, T))
    assert proof, f"{proof.difference} at {kept.keys()}"


@every
def test_keeping_everything_changes_nothing(name: str) -> None:
    case = fresh(name)
    same = shrink(case.spaces, {s.name: range(s.size) for s in case.spaces.shrinkable})
    assert same is not case.model
    state = same.state_dict()
    assert state.keys() == case.before.keys()
    assert all(torch.equal(state[key], value) for key, value in case.before.items())


@every
def test_costs_equal_what_is_counted(name: str) -> None:
    case = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(case.spaces.shrinkable)}
    small = shrink(case.spaces, kept)
    for model, widths in (
        (case.model, {}),
        (small, {key: len(value) for key, value in kept.items()}),
    ):
        cost = case.spaces.cost(widths)
        assert cost.flops == counted_flops(model, case.example)
        assert cost.parameters == parameter_count(model)


@every
def test_a_second_compression_works(name: str) -> None:
    case = fresh(name)
    first = {s.name: halved(s, seed=i) for i, s in enumerate(case.spaces.shrinkable)}
    small = shrink(case.spaces, first, random_interpolations(Cut(case.spaces, first)))
    spaces = find_spaces(small, case.example)
    assert spaces.cost().flops == case.spaces.cost({k: len(v) for k, v in first.items()}).flops
    assert (
        spaces.cost().activation_bytes
        == case.spaces.cost({k: len(v) for k, v in first.items()}).activation_bytes
    )
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(spaces.shrinkable)}
    T = random_interpolations(Cut(spaces, kept))
    assert prove(spaces, Cut(spaces, kept, T), shrink(spaces, kept, T))


@every
def test_the_result_is_an_ordinary_network(name: str) -> None:
    case = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(case.spaces.shrinkable)}
    small = shrink(case.spaces, kept)
    kinds = [type(module) for module in case.model.modules()]
    assert [type(module) for module in small.modules()] == kinds
    example = Example.of(case.example)
    expected = output_tensors(small, example)
    twin = copy.deepcopy(small)
    twin.load_state_dict(small.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(output_tensors(twin, example), expected, strict=True)
    )
    grads = [p.requires_grad for p in case.model.parameters()]
    assert [p.requires_grad for p in small.parameters()] == grads
    small.train().requires_grad_(True)
    loss = sum(out.float().square().mean() for out in _tensors(example.call(small)))
    loss.backward()
    torch.optim.SGD(small.parameters(), lr=1e-3).step()
    assert all(torch.equal(case.model.state_dict()[k], v) for k, v in case.before.items())


def _tensors(output: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]

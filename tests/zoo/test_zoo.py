"""Every network of the zoo: found, shrunk, proved, counted, trained on, and shrunk again."""

from __future__ import annotations

import copy
import time
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
    model: nn.Module
    example: Any
    before: dict[str, Tensor]
    spaces: Spaces
    seconds: float


@cache
def case(name: str) -> Case:
    model, example = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    start = time.perf_counter()
    spaces = find_spaces(model, example)
    return Case(model, example, before, spaces, time.perf_counter() - start)


def fresh(name: str) -> Case:
    """The case with its weights as they were built."""
    known = case(name)
    known.model.load_state_dict(known.before)
    return known


every = pytest.mark.parametrize("name", list(ZOO))


@every
def test_what_must_shrink_can(name: str) -> None:
    known, member = fresh(name), ZOO[name]
    found = {space.name: space.size for space in known.spaces.shrinkable}
    assert member.widths.items() <= found.items(), str(known.spaces)
    for reason in member.frozen:
        assert any(reason in str(space.frozen) for space in known.spaces.frozen), str(known.spaces)
    assert known.seconds < 10
    assert all(space.frozen is None or len(space.frozen) > 8 for space in known.spaces)


@every
def test_planted_redundancy_is_removed_exactly(name: str) -> None:
    known = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(known.spaces.shrinkable)}
    plant(known.spaces, kept)
    T = interpolations(known.spaces, Cut(known.spaces, kept))
    tolerance = {torch.float64: 1e-9, torch.bfloat16: 2e-2}[ZOO[name].dtype]
    small = shrink(known.spaces, kept, T)
    assert parameter_count(small) < parameter_count(known.model)
    assert difference(small, known.model, known.example) < tolerance
    if tolerance < 1e-8:
        known.model.float()
        try:
            example = Example.of(known.example).map(
                lambda t: t.float() if t.is_floating_point() else t
            )
            assert difference(shrink(known.spaces, kept, T), known.model, example) < 1e-4
        finally:
            known.model.double()


@every
def test_projection_identity_at_random_widths(name: str) -> None:
    known = fresh(name)
    generator = torch.Generator().manual_seed(3)
    kept = {}
    for index, space in enumerate(known.spaces.shrinkable):
        if torch.rand(1, generator=generator) < 0.7:
            kept[space.name] = halved(space, seed=10 + index)
    T = random_interpolations(Cut(known.spaces, kept), seed=5)
    cut = Cut(known.spaces, kept, T)
    proof = prove(known.spaces, cut, shrink(known.spaces, kept, T))
    assert proof, f"{proof.difference} at {kept.keys()}"


@every
def test_keeping_everything_changes_nothing(name: str) -> None:
    known = fresh(name)
    same = shrink(known.spaces, {s.name: range(s.size) for s in known.spaces.shrinkable})
    assert same is not known.model
    state = same.state_dict()
    assert state.keys() == known.before.keys()
    assert all(torch.equal(state[key], value) for key, value in known.before.items())


@every
def test_costs_equal_what_is_counted(name: str) -> None:
    known = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(known.spaces.shrinkable)}
    small = shrink(known.spaces, kept)
    for model, widths in (
        (known.model, {}),
        (small, {key: len(value) for key, value in kept.items()}),
    ):
        cost = known.spaces.cost(widths)
        assert cost.flops == counted_flops(model, known.example)
        assert cost.parameters == parameter_count(model)


@every
def test_a_second_compression_works(name: str) -> None:
    known = fresh(name)
    first = {s.name: halved(s, seed=i) for i, s in enumerate(known.spaces.shrinkable)}
    small = shrink(known.spaces, first, random_interpolations(Cut(known.spaces, first)))
    spaces = find_spaces(small, known.example)
    assert spaces.cost().flops == known.spaces.cost({k: len(v) for k, v in first.items()}).flops
    assert (
        spaces.cost().activation_bytes
        == known.spaces.cost({k: len(v) for k, v in first.items()}).activation_bytes
    )
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(spaces.shrinkable)}
    T = random_interpolations(Cut(spaces, kept))
    assert prove(spaces, Cut(spaces, kept, T), shrink(spaces, kept, T))


@every
def test_the_result_is_an_ordinary_network(name: str) -> None:
    known = fresh(name)
    kept = {s.name: halved(s, seed=i) for i, s in enumerate(known.spaces.shrinkable)}
    small = shrink(known.spaces, kept)
    kinds = [type(module) for module in known.model.modules()]
    assert [type(module) for module in small.modules()] == kinds
    example = Example.of(known.example)
    expected = output_tensors(small, example)
    twin = copy.deepcopy(small)
    twin.load_state_dict(small.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(output_tensors(twin, example), expected, strict=True))
    grads = [p.requires_grad for p in known.model.parameters()]
    assert [p.requires_grad for p in small.parameters()] == grads
    small.train().requires_grad_(True)
    loss = sum(out.float().square().mean() for out in _tensors(example.call(small)))
    loss.backward()
    torch.optim.SGD(small.parameters(), lr=1e-3).step()
    assert all(torch.equal(known.model.state_dict()[k], v) for k, v in known.before.items())


def _tensors(output: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]

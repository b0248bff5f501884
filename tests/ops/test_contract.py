"""What every rule must satisfy, checked against the operators themselves."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from tests.ops.calls import Call, Followed
from tests.ops.examples import EXAMPLES
from torch import Tensor

from interpress.ops import registry

FAMILIES = registry.families()
NOT_ON_CPU = {"aten.cudnn_batch_norm"}  # registered, but an example needs CUDA
NUMBERED = [
    pytest.param(example, id=f"{example.family.removeprefix('aten.')}-{number}")
    for number, example in enumerate(EXAMPLES)
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_an_operator_of_torch_or_pointwise(family: str) -> None:
    namespace, _, name = family.partition(".")
    if family == "pointwise":  # every operator with the tag torch.Tag.pointwise
        assert "pointwise" in (registry.families.__doc__ or "")
    else:
        assert getattr(getattr(torch.ops, namespace), name).overloads()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_registration_raises(family: str) -> None:
    before = registry._RULES[family]
    with pytest.raises(ValueError, match=rf"{family} already has a rule: {before[0].__name__}"):
        registry.rule(family)(lambda op: ())
    assert registry._RULES[family] is before


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rule_is_documented_and_takes_one_operator(family: str) -> None:
    function, _ = registry._RULES[family]
    assert function.__doc__
    assert list(inspect.signature(function).parameters) == ["op"]
    assert function.__module__.startswith("interpress.ops.")


def test_a_cost_belongs_to_an_operator_with_a_rule() -> None:
    assert set(registry._FLOPS) <= set(FAMILIES)
    assert all(function.__doc__ for function in registry._FLOPS.values())


def test_every_family_has_an_example() -> None:
    shown = {example.family for example in EXAMPLES} | {"pointwise"}
    assert set(FAMILIES) - shown == NOT_ON_CPU
    assert registry._find(Followed(Call.of("tanh", torch.ones(2))).op)


@pytest.mark.parametrize("example", NUMBERED)
def test_labels_fit_the_outputs(example: Call) -> None:
    followed = Followed(example)
    outputs = example.outputs()
    assert len(followed.labellings) == len(outputs)
    for labellings, output in zip(followed.labellings, outputs, strict=True):
        for labelling in labellings:
            assert labelling.labels.expand(output.shape).shape == output.shape
            assert labelling.labels.ndim == output.ndim
            assert int(labelling.labels.max()) < followed.trace.size
    for _, reason in followed.trace.frozen:
        assert example.family in reason


@pytest.mark.parametrize("example", NUMBERED)
def test_a_channel_that_may_be_dropped_reaches_only_its_own_outputs(example: Call) -> None:
    """Change one channel of the inputs: only outputs with the same channel may change."""
    if "empty" in example.family:  # the output is not defined
        return
    followed = Followed(example)
    before = example.outputs()
    for channel, masks in followed.free():
        noise = iter([torch.where(mask, 3.0, 0.0) for mask in masks])
        after = example.changed(lambda t, noise=noise: _plus(t, next(noise))).outputs()
        for labellings, x, y in zip(followed.labellings, before, after, strict=True):
            differ = ~torch.isclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)
            assert not bool((differ & ~followed.mask(x.shape, labellings, channel)).any())


def _plus(tensor: Tensor, noise: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        return tensor ^ (noise != 0)
    return tensor + noise.to(tensor.dtype) if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("example", NUMBERED)
def test_a_linear_operator_commutes_with_mixing_channels(example: Call) -> None:
    """`f(M x) = M f(x)`, where `M` mixes channels of inputs and outputs alike."""
    followed = Followed(example)
    if not followed.op.linear:
        return
    before = example.outputs()
    for labelling in followed.values[0].channels():
        channels = followed.channels_of(labelling.labels.reshape(-1)).unique().tolist()
        channels = [channel for channel in channels if channel not in followed.bound]
        for labellings, position in zip(followed.labellings, itertools.count(), strict=False):
            present = [
                channel
                for channel in channels
                if bool(followed.mask(before[position].shape, labellings, channel).any())
            ]
            values = iter(followed.values)
            mixed = example.changed(
                lambda t, values=values, present=present: _mixed(
                    t, followed, next(values).labellings, present
                )
            )
            expected = _mixed(before[position], followed, labellings, present)
            torch.testing.assert_close(mixed.outputs()[position], expected)


def _mixed(tensor: Tensor, followed: Followed, labellings: tuple, channels: list[int]) -> Tensor:
    """The tensor with its channels multiplied by a fixed matrix."""
    masks = [followed.mask(tuple(tensor.shape), labellings, channel) for channel in channels]
    if not tensor.is_floating_point() or not any(bool(mask.any()) for mask in masks):
        return tensor
    generator = torch.Generator().manual_seed(len(channels))
    M = torch.randn(len(channels), len(channels), dtype=torch.float64, generator=generator)
    rows = torch.stack([tensor[mask] for mask in masks])  # (channels, elements of each)
    mixed = tensor.clone()
    for mask, row in zip(masks, M.to(rows) @ rows, strict=True):
        mixed[mask] = row
    return mixed

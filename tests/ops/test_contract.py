"""What every rule must satisfy, checked against the operators themselves."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tests.ops.calls import Call, Followed
from tests.ops.examples import EXAMPLES
from torch import Tensor

from interpress.labels.labelling import Labellings
from interpress.ops import registry

FAMILIES = registry.families()
NOT_CALLED = {  # have a rule, but no call here
    "aten.cudnn_batch_norm": "needs CUDA",
    "aten._grouped_mm": "takes bfloat16 only",
    "transformers.grouped_mm_fallback": "an operator of transformers; see test_products",
}


def examples(*, linear: bool = False) -> list[Any]:
    """One parameter per example."""
    return [
        pytest.param(call, id=f"{call.name}-{number}")
        for number, call in enumerate(EXAMPLES)
        if not linear or _may_be_linear(call.family)
    ]


def _may_be_linear(family: str) -> bool:
    declared = family in FAMILIES and registry._RULES[family][1]
    return declared or family in ("aten.mul", "aten.div")  # by a single number


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_an_operator_of_torch_or_pointwise(family: str) -> None:
    if family == "pointwise":  # stands for every operator with the tag torch.Tag.pointwise
        assert "`pointwise`" in str(registry.families.__doc__)
    else:
        namespace, _, name = family.partition(".")
        assert namespace == "aten" or family in NOT_CALLED
        if namespace == "aten":
            assert getattr(torch.ops.aten, name).overloads()


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


def test_a_cost_is_documented_and_belongs_to_an_operator_with_a_rule() -> None:
    assert set(registry._FLOPS) <= set(FAMILIES)
    assert all(function.__doc__ for function in registry._FLOPS.values())


def test_every_family_has_an_example() -> None:
    families = {call.family for call in EXAMPLES} | {"pointwise"}
    assert set(FAMILIES) - families == set(NOT_CALLED)
    assert "aten.tanh" in families - set(FAMILIES)  # the example of pointwise


@pytest.mark.parametrize("call", examples())
def test_labels_fit_the_outputs(call: Call) -> None:
    followed = Followed(call)
    outputs = call.outputs()
    assert len(followed.labellings) == len(outputs)
    for labellings, output in zip(followed.labellings, outputs, strict=True):
        for labelling in labellings:
            sizes = zip(labelling.labels.shape, output.shape, strict=True)
            assert all(size in (1, full) for size, full in sizes)
            assert int(labelling.labels.max()) < followed.trace.size


@pytest.mark.parametrize("call", examples())
def test_reasons_name_the_operator(call: Call) -> None:
    for labels, reason in Followed(call).trace.frozen:
        assert reason.startswith(call.family) or not labels.numel()


@pytest.mark.parametrize("call", examples())
def test_a_channel_that_may_be_dropped_changes_only_its_own_outputs(call: Call) -> None:
    followed = Followed(call)
    before = call.outputs()
    if "empty" in call.name:  # the elements are not defined
        return
    for channel, masks in followed.free():
        iterator = iter(masks)
        after = call.changed(lambda t, i=iterator: _changed_where(t, next(i))).outputs()
        for labellings, x, y in zip(followed.labellings, before, after, strict=True):
            differs = ~torch.isclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)
            assert not bool((differs & ~followed.mask(x.shape, labellings, channel)).any())


def _changed_where(tensor: Tensor, mask: Tensor) -> Tensor:
    changed = ~tensor if tensor.dtype == torch.bool else tensor + 3
    return torch.where(mask, changed, tensor)


@pytest.mark.parametrize("call", examples(linear=True))
def test_a_linear_operator_commutes_with_mixing_channels(call: Call) -> None:
    """`f(M x) = M f(x)`, where `M` mixes the channels along one dim."""
    followed = Followed(call)
    if not followed.op.linear:
        pytest.skip("the rule does not claim it for this call")
    outputs = call.outputs()
    for labelling in followed.values[0].channels():
        channels = set(followed.channels_of(labelling.labels.reshape(-1)).tolist())
        for index, (labellings, output) in enumerate(
            zip(followed.labellings, outputs, strict=True)
        ):
            kept = [
                channel
                for channel in sorted(channels - followed.bound)
                if bool(followed.mask(output.shape, labellings, channel).any())
            ]
            values = iter(followed.values)
            mixed = call.changed(
                lambda t, v=values, kept=kept: _mixed(t, followed, next(v).labellings, kept)
            )
            expected = _mixed(output, followed, labellings, kept)
            torch.testing.assert_close(mixed.outputs()[index], expected)


def _mixed(
    tensor: Tensor, followed: Followed, labellings: Labellings, channels: list[int]
) -> Tensor:
    """The tensor with these channels multiplied by a fixed matrix."""
    masks = [followed.mask(tuple(tensor.shape), labellings, channel) for channel in channels]
    if not any(bool(mask.any()) for mask in masks):
        return tensor
    generator = torch.Generator().manual_seed(len(channels))
    M = torch.randn(len(channels), len(channels), dtype=torch.float64, generator=generator)
    rows = torch.stack([tensor[mask] for mask in masks])  # (channels, elements of each)
    mixed = tensor.clone()
    for mask, row in zip(masks, M.to(rows) @ rows, strict=True):
        mixed[mask] = row
    return mixed

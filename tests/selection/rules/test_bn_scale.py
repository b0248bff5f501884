"""`bn-scale`: the scales of the batch norm behind a layer."""

import torch

from interpress import Analysis
from interpress.selection.profile import Profile
from interpress.selection.rules.bn_scale import bn_scale
from interpress.selection.rules.l1 import l1


def test_the_largest_scales_come_first(analysis: Analysis, profiles: dict[str, Profile]) -> None:
    norm = analysis.study.original.get_submodule("inner.1")
    scales = norm.weight.detach().double().abs()  # type: ignore[union-attr,operator]
    units = bn_scale(profiles["inner.0"]).units
    assert torch.equal(units, scales.argsort(descending=True, stable=True))


def test_without_batch_norm_the_weights_decide(profiles: dict[str, Profile]) -> None:
    hidden = profiles["hidden"]
    assert hidden.producers.scales() == []
    assert torch.equal(bn_scale(hidden).units, l1(hidden).units)

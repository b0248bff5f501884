"""The measured effect of one space on the output, against a network with that space cut."""

from __future__ import annotations

import pytest
import torch

from interpress import Analysis, shrink
from interpress.allocation.effects import Effects
from interpress.selection.orders import Orders


def test_every_space_is_measured_at_half_its_width(orders: Orders, effects: Effects) -> None:
    assert effects.keys() == orders.keys()
    for name, measured in effects.items():
        ((width, distance),) = measured
        assert width == orders.profiles[name].space.size // 2
        assert distance > 0


def test_the_effect_is_the_distance_of_the_cut_networks_output(
    demo_analysis: Analysis, orders: Orders, effects: Effects
) -> None:
    study = demo_analysis.study
    (examples,) = study.few_examples(16)
    images = examples.args[0]
    assert len(orders) == 3
    for name, order in orders.items():
        ((width, distance),) = effects[name]
        kept = {name: order.kept(width)}
        smaller = shrink(study.spaces, kept, study.interpolations(kept))
        with torch.no_grad():
            expected = study.meaning.rule.distance(study.original(images), smaller(images))
        assert distance == pytest.approx(expected, rel=1e-3)

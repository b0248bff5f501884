"""A meter counts what changes along a path, and agrees with the cost at any widths."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.spaces.test_cost import mlp

from interpress import find_spaces


def test_the_meter_agrees_with_the_cost() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    flops, params = spaces.cost.meter("flops"), spaces.cost.meter("params")
    for a, b in itertools.product((1, 5, 8), (1, 2)):
        widths = {"0": a, "2": b}
        assert flops.total(widths) == spaces.cost(widths).flops
        assert params.total(widths) == spaces.cost(widths).parameters
        narrower = flops.total(widths) - flops.total({**widths, "0": 1})
        assert flops.saved(widths, "0", 1) == pytest.approx(narrower)
    # the first layer reads 4 inputs, the second reads the space and makes 2 channels
    assert flops.dependent_cost({"0": 5}, "0") == 2 * 3 * (4 * 5 + 5 * 2)
    assert flops.neighbours("0") == {"0", "2"}
    assert flops.neighbours("2") == {"0", "2", "4"}


def test_totals_and_savings_do_not_depend_on_what_was_asked_before() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    used, asked = spaces.cost.meter("flops"), [{"0": 3}, {}, {"0": 3, "2": 1}, {"2": 1}, {"0": 8}]
    for widths in asked:
        assert used.total(widths) == spaces.cost.meter("flops").total(widths)
    widths = {"0": 8, "2": 2}
    savings = used.savings(widths, "0", [7, 5, 1])
    assert savings == [used.total(widths) - used.total({**widths, "0": w}) for w in (7, 5, 1)]
    assert widths == {"0": 8, "2": 2}

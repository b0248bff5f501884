"""`flops=`: the fraction of the FLOPs, as PyTorch counts them."""

import pytest
from tests.zoo.checks import counted_flops

from interpress import Analysis, Method


@pytest.mark.parametrize("value", [0.7, 0.25])
def test_the_fraction_of_the_flops_is_kept(value: float, analysis: Analysis) -> None:
    result = analysis.compress(flops=value, method=Method(refit=False))
    assert value - 0.015 <= result.flops <= value
    example = analysis.spaces.program.example
    counted = [counted_flops(model, example) for model in (result.model, result.original)]
    assert counted[0] / counted[1] == pytest.approx(result.flops, rel=1e-3)

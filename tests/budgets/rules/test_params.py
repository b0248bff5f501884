"""`params=`: the fraction of the parameters."""

from interpress import Analysis


def test_the_fraction_of_the_parameters_is_kept(analysis: Analysis) -> None:
    result = analysis.compress(params=0.4)
    assert 0.99 * 0.4 <= result.params <= 0.4
    counted = sum(p.numel() for p in result.model.parameters())
    assert counted == result.after.parameters

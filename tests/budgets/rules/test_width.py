"""`width=`: the same fraction of every layer, whatever the allocation."""

from interpress import Analysis, Method


def test_every_layer_keeps_the_same_fraction_rounded_up(analysis: Analysis) -> None:
    result = analysis.compress(width=0.6)
    assert all(row.after == -(-row.before * 6 // 10) for row in result.plan)
    counted = sum(p.numel() for p in result.model.parameters())
    assert counted == result.after.parameters
    other = analysis.compress(width=0.6, method=Method(allocation="constant", refit=False))
    assert other.widths == result.widths

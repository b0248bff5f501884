"""`l1`: the sum of absolute weights."""

import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.l1 import l1


def test_the_filters_with_the_largest_l1_norm_come_first(profiles: dict[str, Profile]) -> None:
    (rows,) = profiles["inner.0"].producers.filters()
    expected = rows.abs().sum(1).argsort(descending=True, stable=True)
    assert torch.equal(l1(profiles["inner.0"]).units, expected)

"""`soft`: the first selection of soft filter pruning equals `l2`."""

import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.soft import soft


def test_the_filters_with_the_largest_norm_come_first(profiles: dict[str, Profile]) -> None:
    (rows,) = profiles["inner.0"].producers.filters()
    expected = rows.norm(dim=1).argsort(descending=True, stable=True)
    assert torch.equal(soft(profiles["inner.0"]).units, expected)

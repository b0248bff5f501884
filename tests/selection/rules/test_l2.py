"""`l2`: the Euclidean norm."""

import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.l2 import l2


def test_the_filters_with_the_largest_norm_come_first(profiles: dict[str, Profile]) -> None:
    (rows,) = profiles["inner.0"].producers.filters()
    expected = rows.norm(dim=1).argsort(descending=True, stable=True)
    assert torch.equal(l2(profiles["inner.0"]).units, expected)


def test_a_space_with_two_producers_counts_both(profiles: dict[str, Profile]) -> None:
    profile = profiles["stem.0"]  # a residual stream
    first, second = (rows.norm(dim=1) for rows in profile.producers.filters())
    both = first / first.mean() + second / second.mean()
    assert torch.equal(l2(profile).units, both.argsort(descending=True, stable=True))

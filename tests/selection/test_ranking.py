"""Rankings by one score per unit."""

import torch

from interpress.selection.ranking import ranked


def test_the_largest_score_is_first_and_ties_keep_their_order() -> None:
    ranking = ranked(torch.tensor([1.0, 4.0, 2.0, 4.0]))
    assert ranking.units.tolist() == [1, 3, 2, 0]
    assert ranking.proxy.tolist() == [1.0, 1.0, 0.5, 0.25, 0.0]  # the next score, relative
    assert ranking.errors is None


def test_scores_that_are_all_zero_do_not_make_nan() -> None:
    assert ranked(torch.zeros(3)).proxy.tolist() == [0.0] * 4

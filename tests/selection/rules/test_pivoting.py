"""`pivoting`: column-pivoted QR of the activations, as SciPy computes it."""

import pytest
import torch
from scipy.linalg import qr
from tests.zoo.members import build

import interpress
from interpress.selection.profile import Profile, profiles_of
from interpress.selection.rules.pivoting import in_blocks, pivoting


def test_the_order_and_the_proxy_are_those_of_pivoted_qr(profiles: dict[str, Profile]) -> None:
    profile = profiles["hidden"]
    _, R, order = qr(profile.factor.R.numpy(), mode="economic", pivoting=True)
    ranking = pivoting(profile)
    first = int(min((ranking.proxy > 1e-6).sum(), 20))  # later pivots are ties up to rounding
    assert ranking.units[:first].tolist() == order[:first].tolist()
    expected = abs(R.diagonal() / R[0, 0])
    assert ranking.proxy[:first].tolist() == pytest.approx(expected[:first], rel=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_head_is_kept_first(weighted: bool) -> None:
    """With one head left, the greedy choice is the best of all single heads."""
    torch.manual_seed(0)
    model, example = build("einsum_attention")
    study = interpress.analyze(model, [example]).study
    profile = profiles_of(study.spaces, study.statistics)["k:heads"]
    assert profile.in_blocks
    ranking = in_blocks(profile, weighted=weighted)
    assert sorted(ranking.units.tolist()) == [0, 1, 2, 3]
    assert ranking.proxy[0] == 1.0
    assert bool((ranking.proxy.diff() <= 0).all())
    if weighted:

        def error(head: int) -> float:
            others = [other for other in range(4) if other != head]
            return profile.squared_error(torch.tensor([head, *others]), 1)

        errors = [error(head) for head in range(4)]
        assert errors[int(ranking.units[0])] == pytest.approx(min(errors))

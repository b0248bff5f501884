"""`T` of every tap is the least-squares interpolation from the kept columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.linalg import FactorStream, RFactor
from interpress.spaces.spaces import Spaces
from interpress.surgery.interpolations import interpolations, tap_ordering
from interpress.surgery.projection_identity import measure_taps


def factors_of(spaces: Spaces, Z: dict[str, Tensor]) -> dict[str, RFactor]:
    factors = {}
    for name, matrix in Z.items():
        stream = FactorStream(spaces.taps[name].size)
        stream.add(matrix)
        factors[name] = stream.factor()
    return factors


def spaces_of(model: nn.Module, *shape: int) -> tuple[Spaces, dict[str, Tensor]]:
    spaces = find_spaces(model.double(), torch.randn(*shape, dtype=torch.float64))
    return spaces, measure_taps(spaces)


def test_T_is_the_least_squares_solution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    spaces, Z = spaces_of(model, 60, 6)
    kept = {"0": torch.tensor([0, 2, 3, 7])}
    ((name, T),) = interpolations(spaces, kept, factors_of(spaces, Z)).items()
    expected = torch.linalg.lstsq(Z[name][:, kept["0"]], Z[name]).solution
    torch.testing.assert_close(T, expected, rtol=1e-8, atol=1e-8)
    assert torch.equal(T[:, kept["0"]], torch.eye(4, dtype=T.dtype))
    assert interpolations(spaces, {"0": torch.arange(8)}, factors_of(spaces, Z)) == {}


def test_a_dead_channel_that_is_kept_interpolates_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].weight[2] = 0
        model[0].bias[2] = -1
    spaces, Z = spaces_of(model, 60, 6)
    kept = {"0": torch.tensor([0, 2, 3, 7])}
    ((name, T),) = interpolations(spaces, kept, factors_of(spaces, Z)).items()
    alive = torch.tensor([0, 3, 7])
    expected = torch.linalg.lstsq(Z[name][:, alive], Z[name]).solution
    removed = torch.tensor([1, 4, 5, 6])
    torch.testing.assert_close(T[[0, 2, 3]][:, removed], expected[:, removed], rtol=1e-8, atol=1e-8)
    assert not bool(T[1, removed].any())


def test_groups_are_not_mixed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 1, groups=2))
    spaces, Z = spaces_of(model, 8, 3, 4, 4)
    (name,) = spaces["0"].taps
    tap = spaces.taps[name]
    stream = FactorStream(tap.size)
    for group in (0, 1):  # rows of one group, with zeros for the other
        stream.add(Z[name] * (tap.groups == group))
    T = interpolations(spaces, {"0": torch.tensor([0, 1, 3, 4])}, {name: stream.factor()})[name]
    assert not bool(T[:2, 3:].any())
    assert not bool(T[2:, :3].any())
    expected = torch.linalg.lstsq(Z[name][:, :2], Z[name][:, 2:3]).solution
    torch.testing.assert_close(T[:2, 2:3], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kept", [[0, 2, 3, 7], [5, 6]])
def test_orderings_start_with_the_kept_columns(kept: list[int]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    spaces, Z = spaces_of(model, 60, 6)
    factors = factors_of(spaces, Z)
    ((name, tap),) = spaces.taps.items()
    ordering, interpolation = tap_ordering(tap, torch.tensor(kept), factors[name])
    assert ordering.order[: len(kept)].tolist() == kept
    assert interpolation.kept.tolist() == kept
    T = interpolations(spaces, {"0": torch.tensor(kept)}, factors)[name]
    torch.testing.assert_close(interpolation.T, T, rtol=1e-7, atol=1e-7)

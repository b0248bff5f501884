"""A cut checks what is kept and `T`, and computes the smaller weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinks_every_way
from torch import Tensor, nn

from interpress import ArgumentError, find_spaces, interpolative_decomposition
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import measure_taps
from interpress.surgery.shrink import shrink

TAP = "2.weight reads linear_1"


def spaces_of_mlp() -> Spaces:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    return find_spaces(model, torch.randn(50, 6))


def test_weights_columns_and_labels_that_stay() -> None:
    spaces = spaces_of_mlp()
    kept, T = torch.tensor([1, 4, 6]), torch.randn(3, 8)
    cut = Cut(spaces, {"0": kept}, {TAP: T})
    tap = spaces.taps[TAP]
    assert torch.equal(cut.columns(tap), kept)
    assert cut.stays(tap.labels).sum() == 3
    assert cut.width_gain(tap) == 1.0
    model = spaces.program.model
    assert set(cut.weights) == {"0.weight", "0.bias", "2.weight"}
    assert torch.equal(cut.weights["0.weight"], model[0].weight[kept])
    expected = model[2].weight.double() @ T.double().T
    torch.testing.assert_close(cut.weights["2.weight"], expected)
    assert cut.weights["2.weight"].dtype == torch.float64  # not rounded yet


def test_a_space_that_is_kept_whole_changes_no_weight() -> None:
    assert Cut(spaces_of_mlp(), {"0": range(8)}).weights == {}


def test_bad_interpolations() -> None:
    spaces = spaces_of_mlp()
    message = r"T has shape \(2, 8\), but 3 of 8 channels are kept there; pass a T of shape \(3, 8"
    with pytest.raises(ArgumentError, match=message):
        Cut(spaces, {"0": [0, 1, 2]}, {TAP: torch.zeros(2, 8)})
    with pytest.raises(ArgumentError, match=r"no tap 'nope'; the taps are '2.weight reads"):
        Cut(spaces, {"0": [0, 1, 2]}, {"nope": torch.zeros(3, 8)})
    with pytest.raises(ArgumentError, match=r"T holds NaN or Inf; compute it from finite data"):
        Cut(spaces, {"0": [0, 1, 2]}, {TAP: torch.full((3, 8), float("nan"))})
    with pytest.raises(ArgumentError, match=r"keeps all its channels.*leave it out of T"):
        Cut(spaces, {}, {TAP: torch.eye(8)})


def test_kept_in_pivot_order_is_refused_with_the_remedy() -> None:
    spaces = spaces_of_mlp()
    decomposition = interpolative_decomposition(measure_taps(spaces)[TAP], k=4)
    kept, T = decomposition.kept, decomposition.T
    order = kept.argsort()
    assert not torch.equal(order, torch.arange(4))
    with pytest.raises(ArgumentError, match=r"not in ascending order.*kept\[order\]"):
        shrink(spaces, {"0": kept}, {TAP: T})
    assert shrink(spaces, {"0": kept[order]}, {TAP: T[order]})
    mask = torch.zeros(8, dtype=torch.bool)
    mask[kept] = True
    assert shrink(spaces, {"0": mask}, {TAP: T[order]})


def test_groups_of_a_convolution_are_not_mixed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 1, groups=2))
    spaces = find_spaces(model, torch.randn(2, 3, 4, 4))
    (tap,) = spaces["0"].taps
    with pytest.raises(ArgumentError, match=r"mixes channels of different groups.*to zero"):
        Cut(spaces, {"0": [0, 3]}, {tap: torch.ones(2, 6)})
    T = torch.tensor([[1.0, 2, 3, 0, 0, 0], [0, 0, 0, 1, 4, 5]])
    cut = Cut(spaces, {"0": [0, 3]}, {tap: T})
    W = model[2].weight.detach().double()[:, :, 0, 0]  # (4, 3): two outputs per group
    expected = torch.cat([W[:2] @ T[:1, :3].double().T, W[2:] @ T[1:, 3:].double().T])
    torch.testing.assert_close(cut.weights["2.weight"][:, :, 0, 0], expected)


def test_a_weight_read_in_parts() -> None:
    class Parts(nn.Module):
        def __init__(self, overlap: bool) -> None:
            super().__init__()
            self.a, self.b, self.d = nn.Linear(4, 5), nn.Linear(4, 7), nn.Linear(12, 3)
            self.overlap = overlap

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.a(x).relu(), self.b(x).relu()
            if self.overlap:
                both = torch.cat([a, b], -1)
                return self.d(both) + F.linear(both[:, :4], self.d.weight[:, :4])
            return F.linear(a, self.d.weight[:, :5]) + F.linear(b, self.d.weight[:, 5:])

    shrinks_every_way(Parts(False), torch.randn(3, 4))
    assert not shrinks_every_way(Parts(True), torch.randn(3, 4)).shrinkable


def test_a_consumer_that_divides_by_the_root_of_its_width() -> None:
    class Attention(nn.Module):
        """Torch scales the product of query and key by the square root of its actual width."""

        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
            )
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    spaces = shrinks_every_way(Attention(), torch.randn(3, 5, 8))
    space = spaces["k"]
    cut = Cut(spaces, {"k": [0, 4]})
    (tap,) = (spaces.taps[name] for name in space.taps)
    assert tap.scaled_by_width
    assert cut.width_gain(tap) == 0.5  # one of four dims per head is kept

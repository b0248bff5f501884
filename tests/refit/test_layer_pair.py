"""Two networks operator by operator: stretches, shared weights and kept outputs."""

from __future__ import annotations

import torch
from tests.zoo.members import build
from torch import Tensor, nn

from interpress import find_spaces
from interpress.graph.capture import capture
from interpress.graph.dense import uses_of_weights
from interpress.refit.layer_pair import kept_outputs, pairs_of, stretches
from interpress.surgery.cut import Cut


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))


def test_stretches_begin_where_they_should_and_lose_no_operator() -> None:
    full, small = (capture(mlp(), torch.randn(4, 6)) for _ in range(2))
    parts = list(stretches(pairs_of(full, small), lambda node: "linear" in str(node.target)))
    assert [len(part) for part in parts] == [2, 2, 1]
    pairs = [pair for part in parts for pair in part]
    assert [a for a, _ in pairs] == list(full.operators())
    assert [b for _, b in pairs] == list(small.operators())


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.twice(self.twice(self.once(x)).relu())


def test_uses_of_a_weight_are_counted() -> None:
    uses = uses_of_weights(capture(Shared(), torch.randn(4, 6)))
    assert uses["once.weight"] == 1
    assert uses["twice.weight"] == uses["twice.bias"] == 2


def test_kept_outputs_are_the_kept_channels_of_the_produced_space() -> None:
    spaces = find_spaces(mlp(), torch.randn(4, 6))
    cut = Cut(spaces, {"0": torch.tensor([1, 4, 6])})
    kept = kept_outputs(cut, "0.weight")
    assert kept is not None
    assert kept.tolist() == [1, 4, 6]
    other = kept_outputs(cut, "2.weight")  # not cut: all of its outputs stay
    assert other is not None
    assert other.tolist() == [0, 1, 2, 3, 4]
    assert kept_outputs(cut, None) is None
    assert kept_outputs(cut, "nowhere.weight") is None


def test_outputs_that_are_channels_of_heads_stay_with_their_head() -> None:
    model, example = build("einsum_attention")
    spaces = find_spaces(model, example)
    kept = kept_outputs(Cut(spaces, {"k:heads": torch.tensor([0, 2])}), "v.weight")
    assert kept is not None
    assert kept.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]

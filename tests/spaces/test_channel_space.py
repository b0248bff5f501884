"""A channel space checks which of its channels may be kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interpress import ArgumentError, ChannelSpace
from interpress.spaces.channel_space import union


def space(cells: list[int], step: int, **fields: Any) -> ChannelSpace:
    return ChannelSpace("conv", len(cells), torch.tensor(cells), step, **fields)


PLAIN = space([0] * 8, 1)
GROUPED = space([0, 0, 0, 1, 1, 1], 2)


def test_widths() -> None:
    assert list(GROUPED.widths()) == [2, 4, 6]
    assert list(space([0] * 8, 1, frozen="it is an output").widths()) == [8]


@pytest.mark.parametrize(
    "kept",
    [[5, 1, 4], torch.tensor([1, 4, 5]), torch.tensor([0, 1, 0, 0, 1, 1, 0, 0], dtype=torch.bool)],
)
def test_kept_channels_become_sorted_indices(kept: Any) -> None:
    assert PLAIN.check(kept).tolist() == [1, 4, 5]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([8], r"space 'conv': channel 8 does not exist; pass channels from 0 to 7"),
        ([-1, 2], r"channel -1 does not exist"),
        ([2, 2], r"kept repeats a channel; give every channel once"),
        ([], r"kept is empty; keep at least 1 channels"),
        ([0.5, 1.7], r"pass the indices of the channels to keep, or a boolean mask of length 8"),
        ([True, False], r"kept has 2 values of torch.bool; pass the indices"),
    ],
)
def test_bad_channels(kept: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PLAIN.check(kept)


def test_cells_keep_the_same_share() -> None:
    assert GROUPED.check([0, 2, 3, 4]).tolist() == [0, 2, 3, 4]
    message = r"2 cells must keep the same share, but they keep \[1, 2\] of \[3, 3\] channels"
    with pytest.raises(ArgumentError, match=message):
        GROUPED.check([0, 3, 4])


def test_a_frozen_space_can_only_be_kept_whole() -> None:
    frozen = space([0] * 4, 4, frozen="it is an output of the model")
    assert frozen.check(range(4)).tolist() == [0, 1, 2, 3]
    with pytest.raises(ArgumentError, match="is frozen: it is an output of the model; leave it"):
        frozen.check([0])


def test_the_union_of_two_spaces_shrinks_both_by_the_same_share() -> None:
    both = union(
        space([0, 0, 0, 0], 1, producers=("a",), taps=("t",)),
        space([0, 0], 1, producers=("b",), taps=("t",)),
    )
    assert (both.size, both.step, both.cells.tolist()) == (6, 3, [0, 0, 0, 0, 1, 1])
    assert (both.producers, both.taps) == (("a", "b"), ("t",))
    assert list(both.widths()) == [3, 6]

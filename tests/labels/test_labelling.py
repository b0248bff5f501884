from __future__ import annotations

import itertools
import math

import pytest
import torch

from interpress.labels.labelling import Labelling, along, collapse, merged_dims, reshape, tidy

SHAPES = [(24,), (4, 6), (2, 3, 4), (3, 8), (2, 2, 6), (1, 24), (4, 1, 6), (12, 2), (2, 3, 2, 2)]


@pytest.mark.parametrize(("old", "new"), list(itertools.product(SHAPES, SHAPES)))
def test_reshape_moves_labels_as_elements_move(old: tuple, new: tuple) -> None:
    for dims in itertools.product([False, True], repeat=len(old)):
        shape = [size if varies else 1 for size, varies in zip(old, dims, strict=True)]
        labels = torch.arange(1, 1 + math.prod(shape)).reshape(shape)
        moved = reshape(labels, old, new)
        assert torch.equal(moved.expand(new), labels.expand(old).reshape(new))
        assert torch.equal(moved, collapse(moved))


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 3, 4), (6, 4), [[0, 1], [2]]),
        ((6, 4), (2, 3, 4), [[0], [1]]),
        ((2, 6), (3, 4), [[0, 1]]),
        ((4,), (4, 1), [[0], []]),
    ],
)
def test_merged_dims_have_equal_products(old: tuple, new: tuple, groups: list) -> None:
    assert merged_dims(old, new) == groups


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3), (2, 2, 2)])
def test_collapse_keeps_every_element(shape: tuple) -> None:
    for values in itertools.product([1, 2], repeat=math.prod(shape)):
        labels = torch.tensor(values).reshape(shape)
        collapsed = collapse(labels)
        assert torch.equal(collapsed.expand(shape), labels)
        for dim, size in enumerate(collapsed.shape):
            first = labels.narrow(dim, 0, 1)
            assert (size == 1) == bool((labels == first).all())


def test_tidy_drops_duplicates_and_constants_and_keeps_the_order() -> None:
    rows, columns = torch.tensor([[1], [2]]), torch.tensor([[3, 4]])
    given = [
        Labelling(columns),
        Labelling(rows),
        Labelling(torch.tensor([[5]])),
        Labelling(columns.clone()),
    ]
    kept = tidy(given)
    assert [labelling.labels.tolist() for labelling in kept] == [columns.tolist(), rows.tolist()]


def test_support_and_moved() -> None:
    labelling = Labelling(torch.arange(6).reshape(1, 2, 3), slab=True, inner=True)
    assert labelling.support == (1, 2)
    moved = labelling.moved(torch.tensor([[7, 7], [8, 8]]))
    assert (moved.labels.tolist(), moved.support) == ([[7], [8]], (0,))
    assert moved.slab
    assert moved.inner


def test_along_adds_leading_dims_as_broadcasting_does() -> None:
    labels = torch.arange(4).reshape(4, 1)
    assert along(labels, 4).shape == (1, 1, 4, 1)
    assert torch.equal(along(labels, 4).expand(2, 3, 4, 5), labels.expand(2, 3, 4, 5))

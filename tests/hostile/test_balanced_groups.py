"""Spaces that keep equally many channels per group: an exact answer is found where one exists."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import interpress
from interpress import Method

DATA = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(9))


def repeat_filters(layer: nn.Conv2d, source: list[int]) -> nn.Conv2d:
    """Return the layer with filters and biases copied from those at `source`."""
    with torch.no_grad():
        layer.weight.copy_(layer.weight[source].clone())
        assert layer.bias is not None
        layer.bias.copy_(layer.bias[source].clone())
    return layer


def producer(groups: str, seed: int) -> nn.Module:
    """Return a network with a grouped convolution whose equal filters have equal letters.

    All groups read the same inputs, so filters of the same letter give the same channel, in one
    group or in several.
    """
    torch.manual_seed(seed)
    count, letters = len(groups.split()), groups.replace(" ", "")
    inputs = nn.Conv2d(3, 4 * count, 3, padding=1)
    grouped = nn.Conv2d(4 * count, len(letters), 3, padding=1, groups=count)
    return nn.Sequential(
        repeat_filters(inputs, [*range(4)] * count),
        nn.ReLU(),
        repeat_filters(grouped, [letters.index(letter) for letter in letters]),
        nn.ReLU(),
        nn.Conv2d(len(letters), 5, 3, padding=1),
    ).eval()


def consumer(groups: str, seed: int) -> nn.Module:
    """Return a network with a grouped convolution that reads channels of which some are equal."""
    torch.manual_seed(seed)
    count, letters = len(groups.split()), groups.replace(" ", "")
    first = nn.Conv2d(3, len(letters), 3, padding=1)
    return nn.Sequential(
        repeat_filters(first, [letters.index(letter) for letter in letters]),
        nn.ReLU(),
        nn.Conv2d(len(letters), 2 * count, 3, padding=1, groups=count),
    ).eval()


def errors_without_one_per_group(
    model: nn.Module, groups: str, exclude: tuple[str, ...] = ()
) -> list[float]:
    """Return the relative errors after one channel of every group is dropped, per method."""
    size = len(groups.split()[0])
    analysis = interpress.analyze(model, DATA, exclude=exclude, progress=False)
    errors = []
    for method in (Method(), Method(refit=False), Method.named("constant-id")):
        result = analysis.compress(width=(size - 1) / size, method=method, progress=False)
        (width,) = result.widths.values()
        assert width == len(groups.replace(" ", "")) - len(groups.split())
        with torch.no_grad():
            expected = model(DATA)
            errors.append(float((result.model(DATA) - expected).norm() / expected.norm()))
    return errors


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", ["aaab cdee", "aabb cdee", "aabc ddef ghii"])
def test_channels_that_repeat_within_a_group_that_reads_them(groups: str, seed: int) -> None:
    assert max(errors_without_one_per_group(consumer(groups, seed), groups)) < 1e-5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "groups",
    [
        "abcd abef",  # of `a` and of `b`, one must go in each group
        "aabe bcdf",  # an `a` of the first group and the `b` of the second
        "bcdf baae",  # the same, with the groups exchanged
        "baac cdef ghbi",  # an `a`, the `c` of the second group, and the `b` of the third
    ],
)
def test_channels_that_repeat_across_the_groups_that_make_them(groups: str, seed: int) -> None:
    model = producer(groups, seed)
    spaces = interpress.find_spaces(model, DATA[:2], progress=False)
    assert spaces["2"].cells.max() + 1 == len(groups.split())
    assert max(errors_without_one_per_group(model, groups, exclude=("0",))) < 1e-5

"""Spaces that keep equally many channels per group: an exact answer is found where one exists."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import interpress
from interpress import Method

DATA = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(9))


def producer(groups: str, seed: int) -> nn.Sequential:
    """Return a network with a grouped convolution whose equal filters have equal letters.

    All groups read the same inputs, so filters of the same letter give the same channel, in one
    group or in several.
    """
    torch.manual_seed(seed)
    count, letters = len(groups.split()), groups.replace(" ", "")
    model = nn.Sequential(
        nn.Conv2d(3, 4 * count, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4 * count, len(letters), 3, padding=1, groups=count),
        nn.ReLU(),
        nn.Conv2d(len(letters), 5, 3, padding=1),
    )
    first_with = [letters.index(letter) for letter in letters]
    with torch.no_grad():
        for layer, source in ((model[0], [*range(4)] * count), (model[2], first_with)):
            layer.weight.copy_(layer.weight[source].clone())
            layer.bias.copy_(layer.bias[source].clone())
    return model.eval()


def consumer(groups: str, seed: int) -> nn.Sequential:
    """Return a network with a grouped convolution that reads channels of which some are equal."""
    torch.manual_seed(seed)
    count, letters = len(groups.split()), groups.replace(" ", "")
    model = nn.Sequential(
        nn.Conv2d(3, len(letters), 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(len(letters), 2 * count, 3, padding=1, groups=count),
    )
    source = [letters.index(letter) for letter in letters]
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[source].clone())
        model[0].bias.copy_(model[0].bias[source].clone())
    return model.eval()


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

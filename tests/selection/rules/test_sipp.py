"""`sipp`: single weights are scored by their largest share of a sum."""

import itertools

import torch
from torch import nn

import interpress
from interpress import Method
from interpress.selection.rules.sipp import sensitivities


def test_a_sensitivity_is_the_largest_share_of_a_weight() -> None:
    torch.manual_seed(0)
    X, W = torch.randn(20, 5, 2), torch.randn(3, 5, 2)
    W[:, 2] = 0
    expected = torch.zeros_like(W)
    for row, (output, weight), sign in itertools.product(X, enumerate(W), (1, -1)):
        terms = (sign * row * weight).clamp(min=0)
        expected[output] = torch.maximum(expected[output], terms / terms.sum().clamp(min=1e-30))
    torch.testing.assert_close(sensitivities(X, W), expected)
    assert not sensitivities(X, W)[:, 2].any()


def test_channels_that_nothing_reads_are_dropped_first() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    with torch.no_grad():
        model[2].weight[:, [1, 4, 8]] = 0
    images = torch.randn(200, 6)
    method = Method(selection="sipp", allocation="constant", refit=False, correct=False)
    smaller = interpress.compress(model, images, width=0.7, method=method, progress=False).model
    with torch.no_grad():
        torch.testing.assert_close(smaller(images), model(images))

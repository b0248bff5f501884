"""The consumers of a tap as matrices: `U @ U.T` and the regression on patches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.calibration.calibrate import calibrate
from interpress.calibration.sensitivity import Sensitivity
from interpress.calibration.statistics import Statistics
from interpress.graph.example import Example
from interpress.linalg.elimination import Consumer
from interpress.selection.consumers import patch_consumer, weight_gram
from interpress.spaces.spaces import Spaces

IMAGES = torch.randn(30, 3, 5, 5, generator=torch.Generator().manual_seed(0))


def measured(model: nn.Module, x: Tensor) -> tuple[Spaces, Statistics]:
    spaces = interpress.find_spaces(model.eval(), x[:2])
    return spaces, calibrate(spaces, [Example.of(x)])


def consumer_of(spaces: Spaces, statistics: Statistics) -> Consumer | None:
    (tap,), parameters = spaces.taps.values(), spaces.program.parameters()
    units = torch.arange(tap.size), tap.size
    return patch_consumer(spaces, tap, units, statistics, parameters)


def norm_of(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return norm


@pytest.mark.parametrize("normed", [False, True])
def test_weights_are_scaled_as_their_batch_norm_does(normed: bool) -> None:
    torch.manual_seed(0)
    convolution, norm = nn.Conv2d(8, 6, 3), norm_of(6)
    tail = (convolution, norm) if normed else (convolution,)
    spaces, statistics = measured(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), *tail), IMAGES)
    (tap,), parameters = spaces.taps.values(), spaces.program.parameters()
    W = convolution.weight.detach().double()
    if normed:
        W = W * (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()[:, None, None, None]
    U = W.movedim(1, 0).flatten(1)  # (channels, outputs x positions)
    torch.testing.assert_close(weight_gram(spaces, tap, parameters), U @ U.T)
    consumer = consumer_of(spaces, statistics)
    assert consumer is not None
    torch.testing.assert_close(consumer.U.double(), W.flatten(1).T, atol=1e-5, rtol=1e-5)
    assert torch.equal(consumer.blocks, torch.arange(72).reshape(8, 9))  # a channel is a block


def test_the_sensitivity_of_a_convolution_weights_its_outputs() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(8, 6, 3)
    spaces, _ = measured(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), convolution), IMAGES)
    (tap,) = spaces.taps.values()
    sensitivity = Sensitivity(torch.randn(10, 6), 1000, of_consumer=True)
    M, W = sensitivity.metric(), convolution.weight.detach().double()
    expected = torch.einsum("oirs,op,pjrs->ij", W, M, W)
    H = weight_gram(spaces, tap, spaces.program.parameters(), sensitivity)
    torch.testing.assert_close(H, expected)


def test_a_bias_makes_the_regression_centred() -> None:
    torch.manual_seed(0)
    for bias in (True, False):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 3, bias=bias))
        spaces, statistics = measured(model, IMAGES)
        (moments,), consumer = statistics.moments.values(), consumer_of(spaces, statistics)
        assert consumer is not None
        assert torch.equal(consumer.G, moments.moments(centred=bias))
        assert consumer.halves is not None
        for half in (0, 1):
            fitted, judged = consumer.halves(half)
            assert torch.equal(fitted, moments.moments(centred=bias, half=half))
            assert torch.equal(judged, moments.moments(centred=bias, half=1 - half))


def test_grouped_consumers_have_one_block_per_group_and_no_patches() -> None:
    torch.manual_seed(0)
    grouped = nn.Conv2d(8, 6, 3, groups=2)
    spaces, statistics = measured(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), grouped), IMAGES)
    (tap,) = spaces.taps.values()
    H = weight_gram(spaces, tap, spaces.program.parameters())
    W = grouped.weight.detach().double()
    for group in range(2):
        U = W[3 * group : 3 * group + 3].movedim(1, 0).flatten(1)
        block = slice(4 * group, 4 * group + 4)
        torch.testing.assert_close(H[block, block], U @ U.T)
    assert not bool(H[:4, 4:].any())
    assert consumer_of(spaces, statistics) is None


def test_patches_that_were_not_measured_leave_one_input_per_channel() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(12, 3)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), linear).eval()
    x = torch.randn(60, 6)
    spaces = interpress.find_spaces(model, x[:2])
    statistics = calibrate(spaces, [Example.of(x)], patches=False)
    consumer = consumer_of(spaces, statistics)
    assert consumer is not None
    (factor,), (variance,) = statistics.factors.values(), statistics.output_variances.values()
    assert torch.equal(consumer.G, factor.G / 60)
    torch.testing.assert_close(consumer.U, linear.weight.detach().double().T)
    assert consumer.energy == variance

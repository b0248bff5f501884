"""Averages over positions before a linear layer are found, and their rows are the same channels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.calibration.averaged import Source, averaged_sources
from interpress.calibration.calibrate import calibrate
from interpress.calibration.consumers import shrinkable_taps
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.rows import BatchRows

IMAGES = torch.randn(10, 3, 6, 6, generator=torch.Generator().manual_seed(0))
CHANNELS = 8


class Pooled(nn.Module):
    """A convolution, a ReLU, something between, and a linear layer."""

    def __init__(self, between: Callable[[Tensor], Tensor], features: int = CHANNELS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.between = nn.Conv2d(3, CHANNELS, 3, padding=1), between
        self.last = nn.Linear(features, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.conv(x).relu()))


GLOBAL: dict[str, Callable[[Tensor], Tensor]] = {
    "adaptive, flatten, dropout": nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)
    ),
    "dropout first": nn.Sequential(nn.Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "average pooling": nn.Sequential(nn.AvgPool2d(6), nn.Flatten()),
    "mean": lambda x: x.mean((2, 3)),
    "mean and flatten": lambda x: x.mean((2, 3), keepdim=True).flatten(1),
    "two means": lambda x: x.mean(3).mean(2),
    "tokens": lambda x: x.flatten(2).transpose(1, 2).mean(1),
}
OTHERS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "no average": (lambda x: x[:, :, 0, 0], CHANNELS),
    "largest": (lambda x: x.amax((2, 3)), CHANNELS),
    "activation behind it": (lambda x: x.mean((2, 3)).sigmoid(), CHANNELS),
    "norm behind it": (lambda x: nn.functional.layer_norm(x.mean((2, 3)), (CHANNELS,)), CHANNELS),
}


def sources_of(model: nn.Module) -> tuple[dict[str, Source], dict[str, Tensor]]:
    """Return the sources by tap, and the value of each on the images."""
    spaces = find_spaces(model.eval(), IMAGES[:2])
    sources = averaged_sources(shrinkable_taps(spaces))
    by_tap, values = {}, {}

    def after(node: object, value: Tensor) -> None:
        for source in sources.get(node, ()):  # type: ignore[call-overload]
            by_tap[source.tap], values[source.tap] = source, value

    Executor(spaces.program).run(Example.of(IMAGES), after=after)
    return by_tap, values


@pytest.mark.parametrize("kind", GLOBAL)
def test_the_mean_of_the_rows_is_what_the_tap_reads(kind: str) -> None:
    model = Pooled(GLOBAL[kind]).eval()
    by_tap, values = sources_of(model)
    ((tap, source),) = by_tap.items()
    rows, in_second = source.rows(values[tap], BatchRows(len(IMAGES)), most=1000)
    assert rows.shape == (10 * 36, CHANNELS)
    assert torch.equal(in_second, torch.arange(10).repeat_interleave(36) % 2 == 1)
    with torch.no_grad():
        read = model.between(model.conv(IMAGES).relu())
    torch.testing.assert_close(rows.reshape(10, 36, CHANNELS).mean(1), read)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_does_not_commute_with_mixing_channels_is_no_average(kind: str) -> None:
    between, features = OTHERS[kind]
    by_tap, _ = sources_of(Pooled(between, features))
    assert by_tap == {}


def test_at_most_so_many_rows_of_every_example_are_taken() -> None:
    by_tap, values = sources_of(Pooled(GLOBAL["mean"]))
    ((tap, source),) = by_tap.items()
    rows, in_second = source.rows(values[tap], BatchRows(len(IMAGES)), most=5)
    assert len(rows) == len(in_second) == 50
    everything, _ = source.rows(values[tap], BatchRows(len(IMAGES)), most=1000)
    for number, row in enumerate(rows):
        example = everything[36 * (number // 5) : 36 * (number // 5 + 1)]
        assert bool((example == row).all(1).any())


def test_calibration_measures_the_channels_before_the_average() -> None:
    model = Pooled(GLOBAL["mean"]).eval()
    statistics = calibrate(find_spaces(model, IMAGES[:2]), [Example.of(IMAGES)], expected=10)
    (halves,) = statistics.halves.values()
    assert halves.rows == (5, 5)
    assert halves.local is not None
    with torch.no_grad():
        positions = model.conv(IMAGES).relu().movedim(1, -1).double()
    for half in (0, 1):
        rows = positions[half::2].reshape(-1, CHANNELS)
        expected = rows.T @ rows / len(rows)
        torch.testing.assert_close(halves.local[half], expected, rtol=1e-5, atol=1e-6)

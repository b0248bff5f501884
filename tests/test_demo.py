"""The demo does the main job and its table says what it should."""

import io
import re

import pytest
import torch
from rich.console import Console

from interpress import demo


def test_demo_preserves_more_than_magnitude_and_fits_80_columns() -> None:
    output = io.StringIO()
    demo.main(Console(file=output, width=80))
    text = output.getvalue()
    rows = {
        name: [float(value) for value in re.findall(r"([\d.]+)%", line)]
        for name in ("original", "interpolative decomposition", "largest weights")
        for line in text.splitlines()
        if f"│ {name} " in line
    }
    agreement = {name: values[0] for name, values in rows.items()}
    assert agreement["original"] == 100
    assert agreement["interpolative decomposition"] >= 99
    assert agreement["largest weights"] < 95
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture(scope="module")
def trained() -> tuple[torch.nn.Sequential, demo.Digits]:
    data = demo.load_digits()
    return demo.train(*data.train, Console(quiet=True), epochs=3), data


def test_the_parts_share_no_image(trained: tuple[torch.nn.Sequential, demo.Digits]) -> None:
    _, data = trained
    assert len(data.train[0]) + len(data.calibration) + len(data.test[0]) == 1797


def test_the_small_network_is_the_projected_original(
    trained: tuple[torch.nn.Sequential, demo.Digits],
) -> None:
    """The projection identity: every hidden value replaced by Z[:, kept] @ T gives its output."""
    model, data = trained
    model, x = model.double(), data.test[0].double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = demo.orderings(model, data.calibration.double())
    small = demo.shrink(model, found, demo.by_interpolation)
    value = x
    for index, layer in enumerate(model):
        value = layer(value)
        if isinstance(layer, torch.nn.ReLU):
            chosen = found[index // 2].at_rank(found[index // 2].n // 2)
            value = value[:, chosen.kept] @ chosen.T
    torch.testing.assert_close(small(x), value, rtol=1e-10, atol=1e-10)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.float()

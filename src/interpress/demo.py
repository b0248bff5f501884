"""The main job on an embedded default: ``make demo`` or ``python -m interpress.demo``.

Trains a small network on scikit-learn's handwritten digits, keeps half of its hidden neurons by
interpolative decomposition of unlabelled activations, and shows what was preserved, beside the
usual alternative of keeping the neurons with the largest weights.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from interpress.linalg import FactorStream, Ordering, order_by_pivoting

WIDTHS = (64, 256, 128, 10)
Selection = Callable[[nn.Linear, Ordering, int], tuple[Tensor, Tensor]]  # kept, T


class Digits(NamedTuple):
    """1,797 real images of 8 x 8 pixels: to train on, to calibrate on, to judge by."""

    train: tuple[Tensor, Tensor]
    calibration: Tensor
    test: tuple[Tensor, Tensor]


def load_digits() -> Digits:
    """Scikit-learn's digits, shuffled once; the three parts share no image."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise SystemExit("the demo needs scikit-learn: pip install 'interpress[demo]'") from error
    pixels, labels = load(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(pixels, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels)[order]
    return Digits((x[:900], y[:900]), x[900:1200], (x[1200:], y[1200:]))


def train(images: Tensor, labels: Tensor, console: Console, epochs: int = 60) -> nn.Sequential:
    """A multilayer perceptron, a few seconds on a CPU."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in track(range(epochs), "training on 900 digits", console=console, transient=True):
        for chosen in torch.randperm(len(images)).split(100):
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def orderings(model: nn.Sequential, calibration: Tensor) -> list[Ordering]:
    """One pass over unlabelled images; every width of every hidden layer is answered from it."""
    streams = [FactorStream(width) for width in WIDTHS[1:-1]]
    for batch in calibration.split(100):
        value = batch
        for index, layer in enumerate(model):
            value = layer(value)
            if isinstance(layer, nn.ReLU):
                streams[index // 2].add(value)
    return [order_by_pivoting(stream.factor()) for stream in streams]


@torch.no_grad()
def shrink(model: nn.Sequential, found: list[Ordering], select: Selection) -> nn.Sequential:
    """Half of the neurons of each hidden layer: rows selected, ``T`` absorbed by the next layer."""
    small = copy.deepcopy(model)
    linear = [layer for layer in small if isinstance(layer, nn.Linear)]
    for layer, reader, ordering in zip(linear[:-1], linear[1:], found, strict=True):
        kept, T = select(layer, ordering, ordering.n // 2)
        absorbed = reader.weight @ T.to(reader.weight).T  # (out, n) @ (n, k) -> (out, k)
        reader.weight = nn.Parameter(absorbed)
        layer.weight = nn.Parameter(layer.weight[kept])
        layer.bias = nn.Parameter(layer.bias[kept])
        layer.out_features = reader.in_features = len(kept)
    return small


def by_interpolation(layer: nn.Linear, ordering: Ordering, k: int) -> tuple[Tensor, Tensor]:
    """The first k pivots, and the ``T`` that rebuilds the others from them."""
    found = ordering.at_rank(k)
    return found.kept, found.T


def by_magnitude(layer: nn.Linear, ordering: Ordering, k: int) -> tuple[Tensor, Tensor]:
    """The k neurons with the largest incoming weights; nothing stands in for the others."""
    kept = layer.weight.abs().sum(dim=1).argsort(descending=True)[:k]
    return kept, torch.eye(ordering.n)[kept]


@torch.no_grad()
def main(console: Console | None = None) -> None:
    """Train, compress, compare, print."""
    console = console or Console()
    data = load_digits()
    with torch.enable_grad():
        model = train(*data.train, console)
    found = orderings(model, data.calibration)
    networks = {
        "original": model,
        "interpolative decomposition": shrink(model, found, by_interpolation),
        "largest weights": shrink(model, found, by_magnitude),
    }
    console.print(_networks_table(networks, data))
    console.print(_errors_table(found))
    console.print(
        f"Calibrated on {len(data.calibration)} images without labels; judged on "
        f"{len(data.test[0])} others.\nAgreement: the share of images on which a network "
        "decides as the original does.",
        style="dim",
    )


def _networks_table(networks: dict[str, nn.Sequential], data: Digits) -> Table:
    images, labels = data.test
    reference = networks["original"](images).argmax(1)
    table = Table(title="Half of the hidden neurons, no labels, no fine-tuning")
    for column in ("network", "widths", "parameters", "agreement", "accuracy"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for name, network in networks.items():
        decided = network(images).argmax(1)
        widths = [layer.out_features for layer in network if isinstance(layer, nn.Linear)]
        table.add_row(
            name,
            "-".join(map(str, widths)),
            f"{sum(p.numel() for p in network.parameters()):,}",
            f"{(decided == reference).float().mean():.1%}",
            f"{(decided == labels).float().mean():.1%}",
        )
    return table


def _errors_table(found: list[Ordering]) -> Table:
    table = Table(title="What the decomposition promises, relative to ||Z||")
    for column in ("hidden layer", "kept", "error", "best possible", "ratio", "max |T|"):
        table.add_column(column, justify="right")
    for index, ordering in enumerate(found, start=1):
        k = ordering.n // 2
        error, bound = ordering.spectral_tail(k), ordering.svd_bound(k).spectral
        table.add_row(
            str(index),
            f"{k} of {ordering.n}",
            f"{error / ordering.spectral_norm:.2%}",
            f"{bound / ordering.spectral_norm:.2%}",
            f"{error / bound:.2f}",
            f"{ordering.at_rank(k).largest_entry:.2f}",
        )
    return table


if __name__ == "__main__":
    main()

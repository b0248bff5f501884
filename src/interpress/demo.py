"""The main job on an embedded default: ``make demo`` or ``python -m interpress.demo``.

Trains a small network on scikit-learn's handwritten digits, compresses it to half of its FLOPs from
unlabelled images, and shows what was preserved, beside the paper's own method and the usual
alternative of keeping the neurons with the largest weights.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from interpress.agreement import agreement
from interpress.api import analyze
from interpress.result import Result
from interpress.surgery import shrink

WIDTHS = (64, 256, 128, 10)


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


def by_magnitude(result: Result) -> nn.Module:
    """As narrow as the result, but with the neurons of the largest weights, and no correction."""
    weights = dict(result.spaces.graph.model.named_parameters())
    kept = {
        name: weights[f"{name}.weight"].abs().sum(dim=1).argsort(descending=True)[:width]
        for name, width in result.widths.items()
    }
    return shrink(result.spaces, kept)


def main(console: Console | None = None) -> None:
    """Train, compress, compare, print."""
    console = console or Console()
    data = load_digits()
    model = train(*data.train, console)
    analysis = analyze(model, data.calibration)
    result = analysis.compress(flops=0.5)
    networks = {
        "original": model,
        "preserve (the default)": result.model,
        "iterative-id (the paper's)": analysis.compress(flops=0.5, method="iterative-id").model,
        "largest weights": by_magnitude(result),
    }
    console.print(_networks_table(networks, data))
    console.print(result.summary(), highlight=False)
    console.print(
        f"Calibrated on {len(data.calibration)} images without labels; judged on "
        f"{len(data.test[0])} others.\nAgreement: the share of images on which a network "
        "decides as the original does.",
        style="dim",
    )


def _networks_table(networks: dict[str, nn.Module], data: Digits) -> Table:
    table = Table(title="Half of the FLOPs, no labels, no fine-tuning")
    for column in ("network", "parameters", "agreement", "KL", "accuracy"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for name, network in networks.items():
        found = agreement(networks["original"], network, data.test)
        assert found.accuracy is not None
        table.add_row(
            name,
            f"{sum(p.numel() for p in network.parameters()):,}",
            f"{float(found):.1%}",
            f"{found.divergence:.4f}",
            f"{found.accuracy[1]:.1%}",
        )
    return table


if __name__ == "__main__":
    main()

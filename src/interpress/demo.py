"""The demo: compress a small trained network that ships with the package.

The package carries a small trained convolutional network and 897 real handwritten digits that it
was not trained on. The demo removes half of its FLOPs without labels. The table compares the result
with the paper's own method and with the usual alternative of keeping the channels with the largest
weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor, nn

from interpress.api import analyze
from interpress.evaluation.agreement import agreement
from interpress.evaluation.latency import latency_ratio
from interpress.graph.example import Example
from interpress.result import Result
from interpress.selection.orders import order_channels
from interpress.storage.result_folder import PAGE
from interpress.surgery.shrink import shrink

ASSETS = Path(__file__).parent / "assets"
_CALIBRATION_IMAGES = 300


class DigitNet(nn.Module):
    """Three convolutions with batch norm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Linear(256, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the ten digits, from images (batch, 1, 8, 8)."""
        return self.classifier(self.features(images).flatten(1))


class Digits(NamedTuple):
    """Real images (1, 8, 8) that the network was not trained on."""

    calibration: Tensor
    test: tuple[Tensor, Tensor]
    """Images and labels."""


def network() -> DigitNet:
    """Return the trained network."""
    model = DigitNet()
    model.load_state_dict(load_file(ASSETS / "digit-net.safetensors"))
    return model.eval()


def load_digits() -> Digits:
    """Return images to calibrate on, without labels, and others to test on."""
    stored = load_file(ASSETS / "digits.safetensors")
    images, labels = stored["images"].float() / 16, stored["labels"].long()
    split = _CALIBRATION_IMAGES
    return Digits(images[:split], (images[split:], labels[split:]))


def by_magnitude(result: Result) -> nn.Module:
    """Return a network of the result's widths that keeps the channels of the largest weights."""
    profiles = result.orders.profiles
    kept = {n: order_channels(profiles[n], "l1").kept(width) for n, width in result.widths.items()}
    return shrink(result.spaces, kept)


def main(
    console: Console | None = None,
    out: Path = Path("interpress-demo"),
    as_json: bool = False,
) -> None:
    """Compress, compare, print, and write the result with its page."""
    console = console or Console()
    data, model = load_digits(), network()
    analysis = analyze(model, data.calibration)
    result = analysis.compress(flops=0.5)
    networks = {
        "original": model,
        "preserve (default)": result.model,
        "iterative-id, paper": analysis.compress(flops=0.5, method="iterative-id").model,
        "largest weights": by_magnitude(result),
    }
    rows = [_compared(name, smaller, model, data) for name, smaller in networks.items()]
    result.save(out, overwrite=True, report=True, evaluation=data.test)
    page = out / PAGE
    if as_json:
        console.print_json(data={"networks": rows, "folder": str(out), "report": str(page)})
        return
    console.print(_table(rows))
    console.print(result.summary(), highlight=False)
    console.print(
        f"Calibrated on {len(data.calibration)} images without labels; tested on "
        f"{len(data.test[0])} other images.\n"
        "agreement: fraction of test images on which the original decides the same\n"
        "time: run time of one batch, relative to the original",
        style="dim",
    )
    console.print(f"Saved to {out}; open {page} in a browser", soft_wrap=True)


def _compared(name: str, smaller: nn.Module, original: nn.Module, data: Digits) -> dict[str, Any]:
    measured = agreement(original, smaller, data.test)
    assert measured.accuracy is not None
    images = data.test[0]
    is_original = smaller is original
    return {
        "network": name,
        "params": sum(p.numel() for p in smaller.parameters()),
        "flops": flops(smaller, images[:1]),
        "time": 1.0 if is_original else latency_ratio(smaller, original, Example((images,))),
        "agreement": measured.agreement,
        "divergence": measured.divergence,
        "accuracy": measured.accuracy[1],
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Half of the FLOPs, no labels, no fine-tuning")
    for column in ("network", "params", "FLOPs", "time", "agreement", "KL", "accuracy"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for row in rows:
        table.add_row(
            row["network"],
            f"{row['params'] / 1e3:.1f} k",
            f"{row['flops'] / 1e6:.2f} M",
            f"{row['time']:.2f}",
            f"{row['agreement']:.1%}",
            f"{row['divergence']:.4f}",
            f"{row['accuracy']:.1%}",
        )
    return table


def flops(model: nn.Module, example: Tensor) -> int:
    """Return the FLOPs of a network as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(example)
    return counter.get_total_flops()

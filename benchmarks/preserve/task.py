"""The networks and images of one run, and the scores of a compressed network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import interpress
from benchmarks.data.cifar import Images, load_cifar
from benchmarks.examples import EFFICIENTNET, load_subject
from benchmarks.experiment import Row
from benchmarks.networks import load_network
from interpress import demo

DIGITS = "digits"
"""The network of the demo, whose images ship with the package."""
_DIGITS_TO_CALIBRATE = 300

Item = TypeVar("Item")


class Task:
    """The networks, images, seeds and budgets of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device: str = options.device
        self.networks: list[str] = options.networks
        self.seeds = range(options.first_seed, options.first_seed + options.seeds)
        self.budgets: list[float] = options.flops

    @cached_property
    def test(self) -> Images:
        """The test images of CIFAR-10."""
        return load_cifar(_cifar_folder(self.options.data), "test")

    def network(self, name: str) -> nn.Module:
        """Return a trained network."""
        return load_network(name, self.options.weights, self.device)

    def split(self, seed: int, source: str = "test") -> tuple[Tensor, Images]:
        """Return calibration images without labels, and images for testing.

        With `source="train"` the calibration images are training images, and the test images are
        those that are left if 1,000 of them calibrate.
        """
        size = self.options.images
        order = _permutation(len(self.test.images), seed)
        testing = self.test.take(order[size if source == "test" else min(size, 1000) :])
        if source == "test":
            return self.test.images[order[:size]], testing
        train = load_cifar(_cifar_folder(self.options.data), "train", self.options.train_limit)
        return train.images[_permutation(len(train.images), seed)[:size]], testing

    def subject(self, name: str, seed: int, source: str = "test") -> tuple[nn.Module, Tensor, Any]:
        """Return a network, its calibration images, and other images to judge on.

        EfficientNet-Lite2 has one split of its ImageNet samples.
        """
        options = self.options
        if name == EFFICIENTNET:
            subject = load_subject(options.data, options.weights, options.device, name)
            return subject.model, subject.calibration, subject.judged
        if name == DIGITS:
            digits = demo.load_digits()
            images = torch.cat([digits.calibration, digits.test[0]])
            images = images[_permutation(len(images), seed)]
            model = demo.network().to(self.device)
            return model, images[:_DIGITS_TO_CALIBRATE], images[_DIGITS_TO_CALIBRATE:]
        calibration, testing = self.split(seed, source)
        return self.network(name), calibration, testing.images


def _cifar_folder(data: Path) -> Path:
    """Return the folder of CIFAR-10: `data`, or the folder `cifar10` in it."""
    return data / "cifar10" if (data / "cifar10").is_dir() else data


def _permutation(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def show_progress(items: Sequence[Item], label: str) -> Sequence[Item]:
    """Iterate over the items with a progress bar on standard error."""
    return track(items, label, console=Console(stderr=True))  # type: ignore[return-value]


def score(model: nn.Module, result: interpress.Result, testing: Images) -> Row:
    """Return FLOPs as a fraction, agreement and accuracy in percent, and the KL divergence.

    `held` has agreement and divergence on the held-out calibration images.
    """
    comparison = interpress.agreement(model, result.model, tuple(testing))
    assert comparison.accuracy is not None
    assert comparison.agreement is not None
    held_out = result.agreement
    return {
        "flops": result.flops,
        "agreement": 100 * comparison.agreement,
        "divergence": comparison.divergence,
        "accuracy": [100 * value for value in comparison.accuracy],
        "held": None if held_out is None else [100 * float(held_out), held_out.divergence],
        "warned": False,
    }

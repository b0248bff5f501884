"""Training, distillation and augmentation, and the intervals in the tables."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from benchmarks.data.cifar import Images
from benchmarks.tables import (
    interval_half_width,
    mean_with_interval,
    mean_with_standard_error,
    table,
)
from benchmarks.training import Recipe, accuracy, distillation, predict, random_crops, train
from torch import nn

from interpress import demo

RECIPE = Recipe(15, lambda epoch: 0.3 * 0.9**epoch, batch=32)


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def test_training_learns_and_distillation_needs_no_labels() -> None:
    data = Images(*demo.load_digits().test)
    torch.manual_seed(0)
    model, student = perceptron(), perceptron()
    epochs: list[int] = []
    train(model, data, RECIPE, on_epoch=epochs.append)
    assert epochs == list(range(15))
    assert not model.training
    assert accuracy(model, data) > 90
    unlabelled = Images(data.images, torch.zeros_like(data.labels))
    train(student, unlabelled, replace(RECIPE, objective=distillation(model)))
    agreed = predict(student, data.images) == predict(model, data.images)
    assert float(agreed.float().mean()) > 0.9


def test_the_data_order_has_its_own_seed() -> None:
    data = Images(*demo.load_digits().test)

    def weights(order_seed: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        train(model, data, replace(RECIPE, epochs=1, order_seed=order_seed))
        return model[1].weight.detach()  # type: ignore[return-value,operator]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_crops_contain_the_pixels_of_the_image() -> None:
    torch.manual_seed(0)
    images = torch.arange(1, 1 + 3 * 64.0).reshape(1, 3, 8, 8).repeat(200, 1, 1, 1)
    crops = random_crops(images, padding=1)
    assert crops.shape == images.shape
    assert set(crops[:, :, 1:7, 1:7].unique().tolist()) <= set(images.unique().tolist())
    assert bool((crops == images).flatten(1).all(1).any())
    assert bool((crops == images.flip(3)).flatten(1).all(1).any())


def test_intervals_are_those_of_students_t() -> None:
    assert interval_half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert mean_with_interval([1.0, 2.0, 3.0], 2).split() == ["2.00", "±", "2.48"]
    assert mean_with_standard_error([1.0, 2.0, 3.0], 2).split() == ["2.00", "±", "0.58"]
    assert mean_with_interval([5.0]) == "5.0"
    assert mean_with_interval([]) == ""


def test_a_table_aligns_numbers_to_the_right() -> None:
    expected = "| a | b | c |\n|---|---|---:|\n| 1 | 2 | 3 |\n"
    assert table(["a", "b", "c"], [[1, 2, 3]], text_columns=2) == expected

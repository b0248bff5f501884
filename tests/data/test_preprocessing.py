"""What was done to raw inputs: kept as plain data, and compared between runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interpress import ArgumentError
from interpress.data.preprocessing import as_preprocessing, differences

IMAGES = {
    "inputs": "images", "preset": "cifar10", "size": 32, "mean": [0.5, 0.25, 0.1],
    "std": [1.0, 1.0, 1.0], "color": "RGB", "shape": [3, 32, 32],
}  # fmt: skip


def test_plain_data_are_kept() -> None:
    assert as_preprocessing(None) is None
    assert as_preprocessing({"size": 224, "mean": (0.5, 0.5)}) == {"size": 224, "mean": [0.5, 0.5]}
    assert as_preprocessing("centre crop") == {"description": "centre crop"}


@pytest.mark.parametrize(
    "value", [{"mean": torch.zeros(3)}, [1, 2], {"std": float("nan")}, {"f": print}], ids=repr
)
def test_what_no_file_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"preprocessing= cannot be written .* give a dict"):
        as_preprocessing(value)


@pytest.mark.parametrize(
    ("change", "different"),
    [
        ({}, []),
        ({"preset": None, "mean": [0.50000000001, 0.25, 0.1]}, []),  # spelled out: the same
        ({"size": None}, []),  # the shape says that nothing was resized
        ({"size": None, "shape": [3, 48, 48]}, ["shape"]),
        ({"size": 48, "shape": [3, 48, 48]}, ["size", "shape"]),
        ({"mean": [0.0, 0.0, 0.0]}, ["mean"]),
        ({"mean": [0.5]}, ["mean"]),
        ({"color": "gray", "shape": [1, 32, 32]}, ["color", "shape"]),
        ({"inputs": "arrays"}, []),
    ],
    ids=str,
)
def test_differences(change: dict[str, Any], different: list[str]) -> None:
    assert differences(IMAGES, IMAGES | change) == {name: IMAGES[name] for name in different}


def test_what_only_one_run_says_is_not_compared() -> None:
    assert differences(IMAGES, None) == {}
    assert differences(None, IMAGES) == {}
    assert differences(IMAGES, {"inputs": "arrays", "shape": [3, 32, 32]}) == {}

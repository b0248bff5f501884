"""The options of data are checked when the record is made."""

from pathlib import Path
from typing import Any

import pytest

from interpress.cli.data_options import PRESETS, DataOptions
from interpress.errors import ArgumentError

PATH = Path("photos")


def test_presets_give_size_mean_and_std() -> None:
    options = DataOptions(PATH, preset="cifar10")
    assert options.image_size() == 32
    assert options.normalization() == (PRESETS["cifar10"].mean, PRESETS["cifar10"].std)
    assert DataOptions(PATH).normalization() == ((0.0,) * 3, (1.0,) * 3)


def test_single_options_override_a_preset() -> None:
    options = DataOptions(PATH, preset="imagenet", size=64, mean="0.5")
    assert options.image_size() == 64
    assert options.normalization() == ((0.5,) * 3, PRESETS["imagenet"].std)


def test_gray_images_have_one_channel() -> None:
    assert DataOptions(PATH, gray=True, preset="half").normalization() == ((0.5,), (0.5,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "--batch 0"),
        ({"limit": -1}, "--limit -1"),
        ({"length": 0}, "--length 0"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": 2**63}, "--seed"),
        ({"size": 0}, "--size 0"),
        ({"size": 9000}, "--size 9000"),
        ({"preset": "vogue"}, "--preset vogue is not known; choose one of cifar10"),
        ({"mean": "0.5"}, "belong together"),
        ({"mean": "a", "std": "1"}, "--mean 'a'; give numbers"),
        ({"mean": "nan", "std": "1"}, "finite"),
        ({"mean": "1,2", "std": "1"}, "--mean '1,2' has 2 values; --mean takes 1 or 3 numbers"),
        ({"mean": "1", "std": "1,0,1"}, "above 0"),
        ({"gray": True, "preset": "cifar10"}, "--preset cifar10 has 3 values"),
    ],
    ids=str,
)
def test_bad_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message.replace("'", ".")):
        DataOptions(PATH, **options)


def test_image_options_are_refused_where_there_are_no_images() -> None:
    DataOptions(PATH, key="a").check_no_image_options()
    with pytest.raises(ArgumentError, match="--gray prepares images"):
        DataOptions(PATH, gray=True).check_no_image_options()

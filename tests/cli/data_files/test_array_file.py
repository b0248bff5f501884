"""Arrays are chosen by name and checked."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from interpress.cli.data_files.array_file import ArrayFile
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError

INPUTS = torch.randn(6, 3)


class Given(ArrayFile):
    """Arrays from a dict instead of a file."""

    arrays: dict[str, Tensor]

    def read(self, path: Path) -> dict[str, Tensor]:
        return self.arrays


def open_arrays(arrays: dict[str, Tensor], key: str | None = None) -> ArrayFile:
    Given.arrays = arrays
    return Given(DataOptions(Path("x"), key=key))


def test_the_only_array_beside_the_labels_is_read() -> None:
    file = open_arrays({"label": torch.arange(6), "a": INPUTS})
    assert file.inputs([4, 1]).equal(INPUTS[[4, 1]])
    assert file.labels is not None
    assert file.labels.tolist() == list(range(6))
    assert open_arrays({"a": INPUTS, "b": INPUTS + 1}, key="b").inputs([0]).equal(INPUTS[:1] + 1)


def test_several_arrays_are_keyword_inputs() -> None:
    arrays = {"x": INPUTS, "length": torch.arange(6), "y": torch.arange(6)}
    file = open_arrays(arrays)
    assert file.input_names == ("x", "length")
    assert file.count == 6
    batch = file.inputs([4, 1])
    assert isinstance(batch, dict)
    assert batch["x"].equal(INPUTS[[4, 1]])
    assert batch["length"].tolist() == [4, 1]
    assert file.labels is not None
    assert open_arrays(arrays, key="x").input_names == ()


@pytest.mark.parametrize(
    ("arrays", "key", "message"),
    [
        ({"a": INPUTS, "b": INPUTS[:4]}, None, "x: 'a' has 6 examples and 'b' has 4; .* --key"),
        (
            {"a": INPUTS, "b": INPUTS * torch.nan},
            None,
            "6 examples of x: 'b' with NaN or Inf, the first is example 0",
        ),
        ({"a": INPUTS, "b": torch.tensor(1.0)}, None, r"x: 'b' has shape \(\); give examples"),
        ({"a": INPUTS}, "c", "no 'c'; it holds a"),
        ({"labels": torch.arange(6)}, None, "holds no inputs but labels"),
        ({}, None, "holds no inputs but nothing"),
        ({"a": torch.ones(6)}, None, r"shape \(6,\)"),
        ({"a": INPUTS.to(torch.complex64)}, None, "complex"),
        ({"a": INPUTS * torch.nan}, None, "NaN or Inf"),
        ({"a": torch.ones(6, 3, dtype=torch.uint8)}, None, "holds bytes"),
        ({"a": INPUTS, "y": torch.arange(5)}, None, r"labels of shape \(5,\) for 6 examples"),
        ({"a": INPUTS, "y": torch.arange(6) - 1}, None, "whole numbers from 0"),
    ],
)
def test_arrays_that_cannot_be_used(
    arrays: dict[str, Tensor], key: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        open_arrays(arrays, key)

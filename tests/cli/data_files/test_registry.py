"""A path is opened by its suffix."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import picture
from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.image_folder import ImageFolder
from interpress.cli.data_files.registry import DATA_FILES, data_file, open_data_file
from interpress.cli.data_options import DataOptions
from interpress.errors import ArgumentError, DataError, StorageError


@pytest.mark.parametrize(
    ("name", "labelled"),
    [
        ("x.npy", False), ("x.npz", True), ("x.safetensors", True), ("x.parquet", True),
        ("photos", False), ("classes", True),
    ],
)  # fmt: skip
def test_every_kind_of_file(home: Path, name: str, labelled: bool) -> None:
    file = open_data_file(DataOptions(home / name))
    assert file.count == 120
    assert (file.labels is not None) == labelled
    assert file.inputs([3, 5]).shape == (2, 3, 8, 8)
    assert file.inputs([3, 5])[1].equal(file.inputs([5])[0])


def test_a_new_kind_is_one_registered_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DATA_FILES, "_parts", dict(DATA_FILES._parts))

    @data_file("csv")
    class CsvFile(DataFile):
        if_empty = "give rows"

        def __init__(self, options: DataOptions) -> None:
            lines = options.path.read_text().split()
            self.rows = [[float(cell) for cell in line.split(",")] for line in lines]

        @property
        def count(self) -> int:
            return len(self.rows)

        def inputs(self, indices: Sequence[int]) -> Tensor:
            return torch.tensor([self.rows[index] for index in indices])

    path = tmp_path / "x.CSV"
    path.write_text("1,2\n3,4")
    assert open_data_file(DataOptions(path)).inputs([1]).tolist() == [[3.0, 4.0]]
    with pytest.raises(ArgumentError, match="--size prepares images"):
        open_data_file(DataOptions(path, size=8))
    path.write_text("")
    with pytest.raises(DataError, match="holds no examples; give rows"):
        open_data_file(DataOptions(path))
    with pytest.raises(DataError, match=r"\.parquet, .*\.csv"):
        open_data_file(DataOptions(Path(__file__)))


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        open_data_file(DataOptions(tmp_path / "nothing.npy"))
    (tmp_path / "one.png").write_bytes(picture(0))
    with pytest.raises(DataError, match="one image; give a folder"):
        open_data_file(DataOptions(tmp_path / "one.png"))
    assert isinstance(open_data_file(DataOptions(tmp_path)), ImageFolder)

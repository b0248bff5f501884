"""Columns of a Parquet file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.cli.conftest import picture

from interpress.cli.data_files.suffixes.parquet import ParquetFile
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError


def write(folder: Path, **columns: list[object]) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), folder / "x.parquet")
    return folder / "x.parquet"


def test_structs_and_plain_bytes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        number=[1, 2],
        a=[{"bytes": picture(0)}, {"bytes": picture(1)}],
        b=[picture(1), picture(0)],
        label=[5, 6],
    )
    first, second = ParquetFile(DataOptions(path)), ParquetFile(DataOptions(path, key="b"))
    assert first.inputs([0]).equal(second.inputs([1]))
    assert first.labels is not None
    assert first.labels.tolist() == [5, 6]


def test_columns_without_images(tmp_path: Path) -> None:
    path = write(tmp_path, number=[1, 2])
    with pytest.raises(DataError, match="no column of image bytes; its columns are number"):
        ParquetFile(DataOptions(path))
    with pytest.raises(DataError, match="no column 'img'; its columns are number"):
        ParquetFile(DataOptions(path, key="img"))
    with pytest.raises(DataError, match="column 'number' holds no image bytes"):
        ParquetFile(DataOptions(path, key="number"))


@pytest.mark.parametrize(
    ("values", "kind"), [(["cat", "dog"], "string"), ([0.5, 1.5], "double"), ([[1], [2]], "list")]
)
def test_labels_that_are_not_whole_numbers_are_not_read(
    tmp_path: Path, values: list[object], kind: str
) -> None:
    file = ParquetFile(DataOptions(write(tmp_path, img=[picture(0), picture(1)], label=values)))
    assert file.labels is None
    assert file.labels_problem is not None
    assert f"column 'label' holds {kind}" in file.labels_problem


def test_a_missing_label_is_ignored(tmp_path: Path) -> None:
    file = ParquetFile(DataOptions(write(tmp_path, img=[picture(0), picture(1)], label=[None, 3])))
    assert file.labels is not None
    assert file.labels.tolist() == [-100, 3]

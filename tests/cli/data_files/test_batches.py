"""Batches are drawn at random, kept in order, and can be read again."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from interpress.cli.data_files.batches import Batches, open_batches
from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_options import DataOptions
from interpress.cli.model_options import ModelOptions


class Numbers(DataFile):
    """The numbers from 0 to 19; records which were read."""

    if_empty = "give numbers"

    def __init__(self, options: DataOptions, labelled: bool = True) -> None:
        self.read: list[int] = []
        self.labels = torch.arange(20) % 3 if labelled else None

    @property
    def count(self) -> int:
        return 20

    def inputs(self, indices: Sequence[int]) -> Tensor:
        self.read += indices
        return torch.tensor(indices)[:, None].float()


def batches(labelled: bool = True, **options: int) -> tuple[Numbers, Batches]:
    record = DataOptions(Path("numbers"), **options)  # type: ignore[arg-type]
    file = Numbers(record, labelled)
    return file, Batches(file, record)


def test_all_examples_in_order() -> None:
    file, data = batches(limit=0, batch=8)
    assert len(data) == 3
    assert torch.cat(list(data)).flatten().tolist() == list(range(20))
    assert torch.cat(list(data)).shape == (20, 1)
    assert file.read == list(range(20))  # the second time from memory


def test_a_limit_draws_examples_and_their_labels() -> None:
    _, data = batches(limit=7, batch=3, seed=1)
    values = torch.cat(list(data)).flatten().long()
    assert data.count == len(values) == 7
    assert values.tolist() == sorted(set(values.tolist()))
    labels = data.labels()
    assert labels is not None
    assert labels.equal(values % 3)
    _, again = batches(limit=7, batch=3, seed=1)
    assert torch.cat(list(again)).flatten().long().equal(values)
    _, another = batches(limit=7, batch=3, seed=2)
    assert not torch.cat(list(another)).flatten().long().equal(values)


def test_labels_beside_inputs() -> None:
    _, data = batches(limit=0, batch=8)
    for inputs, labels in data.with_labels():
        assert labels.equal(inputs.flatten().long() % 3)
    _, unlabelled = batches(labelled=False, limit=0)
    assert unlabelled.with_labels() is unlabelled
    assert unlabelled.labels() is None


def test_a_full_cache_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpress.cli.data_files.batches._CACHE_BYTES", 32)
    file, data = batches(limit=0, batch=8)
    assert torch.cat(list(data)).equal(torch.cat(list(data)))
    assert file.read == [*range(20), *range(8, 20)]  # the first batch is kept


@pytest.mark.parametrize(
    ("count", "limit", "is_said"),
    [(1200, 1000, True), (1200, 0, False), (1200, 4, False), (1000, 1000, False)],
)
def test_a_note_says_that_examples_are_left_out(
    count: int, limit: int, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((count, 3), dtype=np.float32))
    batches = open_batches(DataOptions(path, limit=limit), ModelOptions("nets.py:Net"))
    assert batches.count == min(count, limit or count)
    expected = (
        f"note: 1,000 of the 1,200 examples of {path} are used, drawn at random; "
        "--limit 0 uses all\n"
    )
    assert capsys.readouterr().err == (expected if is_said else "")

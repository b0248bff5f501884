"""Calibration data in every shape that training loops have them."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest
import torch
from interpress.data.batches import batch_size, merge_batches
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from interpress import ArgumentError, DataError
from interpress.calibration.sample_weights import draw_examples
from interpress.data.calibration_set import CalibrationSet
from interpress.graph.example import Example

X = torch.arange(60.0).reshape(20, 3)
MODEL = nn.Linear(3, 2)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, input_ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(input_ids) if mask is None else self.layer(input_ids) * mask


def rows(calibration: CalibrationSet, part: str = "all") -> Tensor:
    found = list(calibration.batches(part))  # type: ignore[arg-type]
    return torch.cat([(e.args or tuple(e.kwargs.values()))[0] for e in found])


Y = torch.zeros(20, dtype=torch.long)
SOURCES = {
    "tensor": lambda: X,
    "array": lambda: X.numpy(),
    "list of tensors": lambda: list(X.split(7)),
    "list of pairs": lambda: [(x, y) for x, y in zip(X.split(7), Y.split(7), strict=True)],
    "tuple of tensors": lambda: (X, Y),
    "generator": lambda: (x for x in X.split(6)),
    "loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=8),
    "shuffled loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True),
    "dataset": lambda: TensorDataset(X, Y),
    "example": lambda: Example((X,)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_the_same_rows_and_the_same_parts(kind: str) -> None:
    calibration = CalibrationSet(SOURCES[kind](), MODEL)
    calibration.check_stable()
    assert torch.equal(rows(calibration), X)
    fit, held = rows(calibration, "fit"), rows(calibration, "held")
    assert len(held) == 4
    assert torch.equal(torch.cat([fit, held])[:, 0].sort().values, X[:, 0])
    assert torch.equal(fit, rows(calibration, "fit"))


@pytest.mark.parametrize("wrap", [dict, UserDict])
def test_dicts_lose_labels_and_what_the_model_does_not_take(wrap: type) -> None:
    batch = wrap({"input_ids": X, "labels": Y, "path": ["a"] * 20, "extra": X})
    for source in (batch, [batch]):
        (example,) = CalibrationSet(source, Named()).batches()
        assert set(example.kwargs) == {"input_ids"}
    with pytest.raises(DataError, match=r"'pixels'.*takes none.*input_ids"):
        next(CalibrationSet([{"pixels": X}], Named()).batches())


def test_a_model_with_two_required_inputs_gets_both() -> None:
    model = nn.Bilinear(3, 3, 2)
    (example,) = CalibrationSet([(X, X + 1, Y)], model).batches()
    assert len(example.args) == 2
    with pytest.raises(DataError, match="batch 0 has 1 inputs, but Bilinear takes 2"):
        next(CalibrationSet([(X,)], model).batches())


def test_forward_is_recorded_without_running_the_model() -> None:
    calibration = CalibrationSet(
        [{"pixels": X}], Named(), forward=lambda model, batch: model(batch["pixels"], mask=None)
    )
    (example,) = calibration.batches()
    assert torch.equal(example.args[0], X)
    assert example.kwargs == {"mask": None}
    model = Named()
    with pytest.raises(ArgumentError, match="without calling the model"):
        next(CalibrationSet([X], model, forward=lambda model, batch: batch).batches())
    assert not model._forward_pre_hooks


def test_inputs_follow_the_model_in_type() -> None:
    (example,) = CalibrationSet(X, nn.Linear(3, 2).double()).batches()
    assert example.args[0].dtype == torch.float64
    (example,) = CalibrationSet({"input_ids": Y}, Named().half()).batches()
    assert example.kwargs["input_ids"].dtype == torch.int64


def test_data_that_change_are_refused() -> None:
    class Noise:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([torch.randn(5, 3)])

    with pytest.raises(ArgumentError, match="change each time"):
        CalibrationSet(Noise(), MODEL).check_stable()


@pytest.mark.parametrize("empty", [[], torch.zeros(0, 3), iter(())])
def test_empty_data(empty: object) -> None:
    calibration = CalibrationSet(empty, MODEL)
    with pytest.raises(DataError, match="empty"):
        calibration.check_stable()
    with pytest.raises(DataError, match="empty"):
        list(calibration.batches())


def test_one_example_is_not_enough_to_hold_one_out() -> None:
    with pytest.raises(DataError, match="hold 1 example; give at least 2"):
        list(CalibrationSet(X[:1], MODEL).batches("held"))
    assert len(rows(CalibrationSet(X[:2], MODEL), "held")) == 1


@pytest.mark.parametrize("wrong", ["folder", None, 3, b"x"])
def test_what_is_no_data(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="calibration is a"):
        CalibrationSet(wrong, MODEL)
    with pytest.raises(DataError, match="batch 0 is a str"):
        next(CalibrationSet(["a.png"], MODEL).batches())


def test_a_sample_is_spread_over_the_data_and_comes_in_whole_batches() -> None:
    many = torch.arange(3000.0).reshape(1000, 3)
    calibration = CalibrationSet(many, MODEL)
    fitted = len(rows(calibration, "fit"))
    places, counts = draw_examples(torch.ones(fitted), 250, seed=1)
    found = calibration.examples_at("fit", places, 100)
    chosen = torch.cat([e.args[0] for e in found])[:, 0] / 3
    assert len(chosen) == 250
    assert len(chosen.unique()) == 250
    assert float(chosen.min()) < 50
    assert float(chosen.max()) > 950
    assert max(batch_size(e) for e in found) <= 100
    assert len(found) <= 7
    assert counts is None
    held = set((rows(calibration, "held")[:, 0] / 3).tolist())
    assert not held & set(chosen.tolist())


def test_merging_keeps_what_has_no_batch_dim() -> None:
    shared = torch.ones(1, 3)
    parts = [Example((X[:4],), {"mask": shared}), Example((X[4:9],), {"mask": shared})]
    whole = merge_batches(parts)
    assert torch.equal(whole.args[0], X[:9])
    assert whole.kwargs["mask"].shape == (1, 3)


def test_numpy_inside_tuples() -> None:
    (example,) = CalibrationSet([(np.ones((4, 3), dtype=np.float32), np.zeros(4))], MODEL).batches()
    assert example.args[0].shape == (4, 3)


@pytest.mark.parametrize("size", [1, 7, 50, 80, 100, 160, 1000])
def test_examples_are_packed_into_full_batches_in_order(size: int) -> None:
    many = torch.arange(900.0).reshape(300, 3)
    calibration = CalibrationSet(list(many.split(100)), MODEL)
    fitted = rows(calibration, "fit")
    places = torch.arange(0, len(fitted), 2)
    found = calibration.examples_at("fit", places, size)
    assert torch.equal(torch.cat([e.args[0] for e in found]), fitted[places])
    assert {batch_size(e) for e in found[:-1]} <= {size}
    assert 1 <= batch_size(found[-1]) <= size


def test_batches_of_other_shapes_are_not_packed_together() -> None:
    texts = [torch.zeros(10, 4), torch.zeros(10, 6), torch.zeros(10, 6)]
    calibration = CalibrationSet(texts, MODEL)
    count = calibration.count("fit")
    found = calibration.examples_at("fit", torch.arange(count), 100)
    assert [e.args[0].shape[1] for e in found] == [4, 6]
    assert sum(map(batch_size, found)) == count

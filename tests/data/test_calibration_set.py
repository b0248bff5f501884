"""The calibration set: the same batches at every reading, in two parts that never mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from interpress import ArgumentError, DataError
from interpress.calibration.sample_weights import draw_examples
from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet, Part
from interpress.graph.example import Example

X = torch.arange(60.0).reshape(20, 3)
Y = torch.zeros(20, dtype=torch.long)
MODEL = nn.Linear(3, 2)


def rows(calibration: CalibrationSet, part: Part = "all") -> Tensor:
    """Return the first input of every example of a part."""
    return torch.cat([next(iter(e.tensors())) for e in calibration.batches(part)])


SOURCES: dict[str, Callable[[], Any]] = {
    "tensor": lambda: X,
    "array": lambda: X.numpy(),
    "list of tensors": lambda: list(X.split(7)),
    "list of pairs": lambda: list(zip(X.split(7), Y.split(7), strict=True)),
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


def test_the_seed_draws_the_held_out_examples() -> None:
    first, same, other = (rows(CalibrationSet(X, MODEL, seed=s), "held") for s in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("limit", [1, 7, 16, 99])
def test_no_more_examples_are_read_than_asked_for(limit: int) -> None:
    calibration = CalibrationSet(list(X.split(6)), MODEL)
    examples = torch.cat([e.args[0] for e in calibration.batches("fit", limit)])
    assert torch.equal(examples, rows(calibration, "fit")[:limit])


def test_forward_decides_how_a_batch_is_passed() -> None:
    calibration = CalibrationSet(
        [{"pixels": X}], MODEL, forward=lambda model, batch: model(batch["pixels"])
    )
    assert torch.equal(rows(calibration), X)
    with pytest.raises(ArgumentError, match="forward=3; give a function"):
        CalibrationSet(X, MODEL, forward=3)  # type: ignore[arg-type]


def test_inputs_follow_the_model_in_type() -> None:
    (example,) = CalibrationSet(X, nn.Linear(3, 2).double()).batches()
    assert example.args[0].dtype == torch.float64
    (example,) = CalibrationSet(Y, nn.Linear(3, 2).half()).batches()
    assert example.args[0].dtype == torch.int64


class Noise:
    def __iter__(self) -> Iterator[Tensor]:
        return iter([torch.randn(5, 3)])


class ChangesLater:
    """The first batch is the same at every reading, the second is not."""

    readings = 0

    def __iter__(self) -> Iterator[Tensor]:
        self.readings += 1
        return iter([X[:10], X[10:].roll(self.readings, 0)])


def test_data_that_change_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"change each time they are read \(batch 0"):
        CalibrationSet(Noise(), MODEL).check_stable()
    calibration = CalibrationSet(ChangesLater(), MODEL)
    calibration.check_stable()
    assert calibration.count() == 20
    with pytest.raises(ArgumentError, match=r"change each time they are read \(batch 1"):
        calibration.count()


def test_the_fingerprint_is_that_of_the_data() -> None:
    prints = []
    for data in (X, X.clone(), X.flip(0)):
        calibration = CalibrationSet(data, MODEL)
        calibration.count()
        prints.append(calibration.fingerprint())
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("empty", [[], torch.zeros(0, 3), iter(())])
def test_empty_data(empty: object) -> None:
    calibration = CalibrationSet(empty, MODEL)
    with pytest.raises(DataError, match="empty"):
        calibration.check_stable()
    with pytest.raises(DataError, match="empty"):
        list(calibration.batches())


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_fewer_than_five_examples_are_both_fitted_and_judged_on(count: int) -> None:
    calibration = CalibrationSet(X[:count], MODEL)
    assert calibration.holds_out == (count == 5)
    fit, held = rows(calibration, "fit"), rows(calibration, "held")
    if count < 5:
        assert torch.equal(fit, X[:count])
        assert torch.equal(held, X[:count])
    else:
        assert (len(fit), len(held)) == (4, 1)
    assert calibration.expected_fit_examples() == len(fit)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 20])
@pytest.mark.parametrize("batch", [1, 2, 3, 20])
def test_the_halves_are_every_other_example_to_fit(count: int, batch: int) -> None:
    """Calibration counts the examples to fit in the same way, in batches of any size."""
    calibration = CalibrationSet(list(X[:count].split(batch)), MODEL)
    fit = rows(calibration, "fit")
    assert torch.equal(rows(calibration, "first"), fit[::2])
    assert torch.equal(rows(calibration, "second"), fit[1::2])


@pytest.mark.parametrize("seed", ["a", 1.5, True, 2**70, -1])
def test_bad_seeds(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="seed="):
        CalibrationSet(X, MODEL, seed=seed)


def test_loaders_are_read_in_order_with_as_many_examples() -> None:
    data = TensorDataset(torch.randn(200, 3), torch.zeros(200).long())
    some = DataLoader(data, sampler=RandomSampler(data, num_samples=40), batch_size=20)
    assert CalibrationSet(some, MODEL).count() == 40
    assert CalibrationSet(some, MODEL).batch_count() == 2
    whole = DataLoader(data, shuffle=True, drop_last=True, batch_size=150)
    assert CalibrationSet(whole, MODEL).count() == 150


def test_a_sample_is_spread_over_the_data_and_comes_in_whole_batches() -> None:
    many = torch.arange(3000.0).reshape(1000, 3)
    calibration = CalibrationSet(many, MODEL)
    fitted = len(rows(calibration, "fit"))
    indices, weights = draw_examples(torch.ones(fitted), 250, seed=1)
    batches = calibration.examples_at("fit", indices, 100)
    chosen = torch.cat([e.args[0] for e in batches])[:, 0] / 3
    assert len(chosen) == 250
    assert len(chosen.unique()) == 250
    assert float(chosen.min()) < 50
    assert float(chosen.max()) > 950
    assert max(batch_size(e) for e in batches) <= 100
    assert len(batches) <= 7
    assert weights is None
    held = set((rows(calibration, "held")[:, 0] / 3).tolist())
    assert not held & set(chosen.tolist())


@pytest.mark.parametrize("size", [1, 7, 50, 80, 100, 160, 1000])
def test_examples_are_packed_into_full_batches_in_order(size: int) -> None:
    many = torch.arange(900.0).reshape(300, 3)
    calibration = CalibrationSet(list(many.split(100)), MODEL)
    fitted = rows(calibration, "fit")
    indices = torch.arange(0, len(fitted), 2)
    batches = calibration.examples_at("fit", indices, size)
    assert torch.equal(torch.cat([e.args[0] for e in batches]), fitted[indices])
    assert {batch_size(e) for e in batches[:-1]} <= {size}
    assert 1 <= batch_size(batches[-1]) <= size


def test_batches_of_other_shapes_are_not_packed_together() -> None:
    texts = [torch.zeros(10, 4), torch.zeros(10, 6), torch.zeros(10, 6)]
    calibration = CalibrationSet(texts, MODEL)
    count = calibration.count("fit")
    batches = calibration.examples_at("fit", torch.arange(count), 100)
    assert [e.args[0].shape[1] for e in batches] == [4, 6]
    assert sum(map(batch_size, batches)) == count


@pytest.mark.parametrize("most", [None, 60, 16, 1])
@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
def test_held_out_examples_are_gathered_in_order_into_bounded_batches(
    batch: int, most: int | None
) -> None:
    everything = torch.arange(1000.0)[:, None].expand(-1, 3)
    data = CalibrationSet(list(everything.split(batch)), MODEL)
    gathered = [example.args[0] for example in data.gathered("held", most)]
    assert torch.equal(torch.cat(gathered), rows(data, "held"))
    if most is not None:
        assert max(map(len, gathered)) <= most


class Uncounted:
    """Batches whose number nobody knows."""

    def __init__(self, examples: int = 60) -> None:
        self.examples = examples

    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.ones(self.examples, 3).split(20)


@pytest.mark.parametrize(
    ("source", "examples"),
    [
        (torch.randn(1000, 3), 800),
        ((torch.randn(1000, 3), torch.zeros(1000)), 800),
        ([torch.randn(50, 3), torch.randn(5, 3), torch.randn(5, 3)], 48),  # not like the first
        ([{"input": torch.randn(20, 3)}] * 3, 48),
        (iter(Uncounted()), 48),  # can be read only once, and is kept
        (DataLoader(TensorDataset(torch.randn(60, 3)), batch_size=7), 48),
        (Uncounted(), 48),  # few are counted
    ],
)
def test_the_number_of_fit_examples_is_known(source: object, examples: int) -> None:
    calibration = CalibrationSet(source, MODEL)
    assert calibration.expected_fit_examples() == examples == calibration.count("fit")


def test_examples_of_unknown_number_are_counted_up_to_a_thousand() -> None:
    calibration = CalibrationSet(Uncounted(2000), MODEL)
    assert calibration.expected_fit_examples() == 800
    assert calibration.count("fit") == 1600


def test_the_first_examples_are_at_most_four() -> None:
    assert torch.equal(CalibrationSet(X, MODEL).first().args[0], X[:4])
    assert torch.equal(CalibrationSet(X[:3], MODEL).first().args[0], X[:3])
    assert CalibrationSet(X, MODEL).first().free_dims == frozenset()


@pytest.mark.parametrize("read", [list, iter])
def test_the_longest_examples_come_first_if_lengths_differ(read: Callable[[Any], Any]) -> None:
    texts = [torch.zeros(6, 4, 3), torch.ones(2, 7, 3), torch.zeros(6, 5, 3)]
    first = CalibrationSet(read(texts), MODEL).first()
    assert first.free_dims == {1}
    assert torch.equal(first.args[0], texts[1])


MASK = torch.arange(3) < torch.arange(20)[:, None] % 3 + 1


@pytest.mark.parametrize(
    ("batch", "mask"),
    [
        ({"input": X, "attention_mask": MASK.long()}, None),
        ({"input": X, "labels": torch.where(MASK, 1, -100)}, None),
        ({"input": X, "real": MASK}, "real"),
        ({"input": X}, lambda batch: MASK),
    ],
)
def test_masks_follow_their_examples(batch: dict[str, Tensor], mask: Any) -> None:
    class Masked(nn.Linear):
        def forward(self, input: Tensor, **kwargs: Tensor) -> Tensor:
            return super().forward(input)

    calibration = CalibrationSet([batch], Masked(3, 2), mask=mask)
    (example,) = calibration.batches("held")
    index = (example.tensors()[0][:, 0] / 3).long()
    (held,) = example.masks
    assert len(held) == 4
    assert torch.equal(held.bool(), MASK[index])


def test_without_padding_there_is_no_mask() -> None:
    (example,) = CalibrationSet([(X, Y)], MODEL).batches()
    assert example.masks == ()
    with pytest.raises(ArgumentError, match="mask=3; give a key of the batch"):
        CalibrationSet(X, MODEL, mask=3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="mask='real' is not a key of calibration batch 0"):
        list(CalibrationSet([{"input": X}], MODEL, mask="real").batches())


class Mixed(nn.Module):
    """Its first layer has another dtype than the rest."""

    def __init__(self, casts: bool) -> None:
        super().__init__()
        self.casts, self.scale = casts, nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.casts:
            return self.layer(x.to(self.scale.dtype).mul(self.scale).float())
        return self.layer((x.contiguous().view(torch.bfloat16).view(x.shape) * self.scale).float())


def test_inputs_of_a_network_of_several_dtypes_stay_as_they_are_if_it_runs_so() -> None:
    data = torch.randn(10, 4)
    (example,) = CalibrationSet(data, Mixed(casts=True)).batches()
    assert example.args[0].dtype == torch.float32
    (example,) = CalibrationSet(data, Mixed(casts=False)).batches()  # it does not run on float32
    assert example.args[0].dtype == torch.bfloat16
    half = nn.Linear(4, 2).to(torch.float16)
    (example,) = CalibrationSet(data, half).batches()
    assert example.args[0].dtype == torch.float16

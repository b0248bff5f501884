from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError
from interpress.data.calibration_set import CalibrationSet
from interpress.distillation.inputs import Inputs


def inputs(data: object, augment: object = None) -> Inputs:
    return Inputs(CalibrationSet(data, nn.Linear(3, 2)), 0, augment)  # type: ignore[arg-type]


def tokens() -> Tensor:
    return torch.arange(50).reshape(50, 1).expand(50, 4).contiguous()


def test_every_fitted_example_comes_once_per_epoch_and_no_held_out_one() -> None:
    data = CalibrationSet(tokens(), nn.Linear(3, 2))
    fitted = sorted(int(row[0]) for batch in data.batches("fit") for row in batch.args[0])
    batches = [b.args[0] for b in islice(Inputs(data, 0).batches(8), 2 * 5)]
    for epoch in (batches[:5], batches[5:]):
        assert sorted(int(row[0]) for batch in epoch for row in batch) == fitted
    assert not all(torch.equal(a, b) for a, b in zip(batches[:5], batches[5:], strict=True))


def test_tokens_are_not_mixed() -> None:
    for batch in islice(inputs(tokens()).batches(8), 5):
        assert batch.args[0].dtype is torch.int64
        assert bool((batch.args[0] == batch.args[0][:, :1]).all())


def test_real_inputs_are_mixtures_of_two_examples() -> None:
    x = torch.eye(50)
    batch = next(inputs(x).batches(40)).args[0]
    torch.testing.assert_close(batch.sum(1), torch.ones(40))
    counts = (batch > 0).sum(1)
    assert int(counts.max()) == 2
    assert float((counts == 2).float().mean()) > 0.5


def test_a_run_can_go_on_at_any_batch() -> None:
    x = torch.randn(50, 3)
    whole = [b.args[0] for b in islice(inputs(x).batches(8), 9)]
    later = [b.args[0] for b in islice(inputs(x).batches(8, start=6), 3)]
    for one, other in zip(whole[6:], later, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_augment_changes_the_inputs() -> None:
    batch = next(inputs(torch.ones(50, 3), lambda x: 5 * x).batches(8)).args[0]
    torch.testing.assert_close(batch, torch.full((8, 3), 5.0))


def test_augment_must_keep_the_number_of_examples() -> None:
    with pytest.raises(ArgumentError, match="augment="):
        next(inputs(torch.ones(50, 3), lambda x: x[:1]).batches(8))


def test_examples_of_several_lengths_stay_apart() -> None:
    data = [torch.ones(20, 4, dtype=torch.long), torch.ones(20, 6, dtype=torch.long)]
    shapes = {b.args[0].shape[1] for b in islice(inputs(data).batches(8), 10)}
    assert shapes == {4, 6}

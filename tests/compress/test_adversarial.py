"""What a hostile reviewer tried, so that it stays mended."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from tests.compress.conftest import Trained
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import interpress
from interpress import Analysis, ArgumentError, DataError, agreement, analyze, compress, load
from interpress.data.calibration_set import CalibrationSet

X = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))


def mlp(hidden: int = 40) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 30), nn.ReLU(), nn.Linear(30, 6)
    ).eval()


OFFSETS = {
    "kelvin": 290 + 3 * torch.randn(600, 16, generator=torch.Generator().manual_seed(0)),
    "narrow": 5 + 0.01 * torch.randn(600, 16, generator=torch.Generator().manual_seed(0)),
    "constant": torch.ones(200, 16),
}


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_data_far_from_zero_or_constant(name: str) -> None:
    result = compress(mlp(), OFFSETS[name], flops=0.6)
    assert result.flops <= 0.6
    found = agreement(mlp(), result.model, OFFSETS[name])
    assert float(found) > 0.9


def test_a_dead_layer() -> None:
    model = mlp()
    nn.init.zeros_(model[0].weight)
    result = compress(model, X, flops=0.6)
    torch.testing.assert_close(result.model(X), model(X), atol=1e-4, rtol=1e-4)


def test_held_out_examples_do_not_choose_widths_or_weights(digits: Trained) -> None:
    images = digits.calibration
    held = CalibrationSet(images, digits.model)._chosen("held", 0, len(images))
    other = images.clone()
    other[held] = torch.rand(len(held), 1, 8, 8, generator=torch.Generator().manual_seed(9))
    first, second = (
        compress(digits.model, data, flops=0.4, refit=False) for data in (images, other)
    )
    assert first.widths == second.widths
    a, b = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_language_model_with_its_default_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=32, bos_token_id=1,
        eos_token_id=1,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(64, (60, 10), generator=torch.Generator().manual_seed(0))
    result = compress(model, {"input_ids": ids}, flops=0.9, refit=False)
    found = agreement(model, result.model, {"input_ids": ids, "labels": torch.full_like(ids, -100)})
    assert found.decisions == 600
    assert found.accuracy is None  # -100 is no label


def test_output_error_is_relative_to_each_outputs_spread() -> None:
    model = nn.Linear(16, 2)
    model.bias.data = torch.tensor([0.0, 1000.0])
    flat = copy.deepcopy(model)
    nn.init.zeros_(flat.weight)
    found = agreement(model, flat, X, kind="regression")
    assert found.output_error == pytest.approx(1.0, abs=0.05)


class Counting(nn.Module):
    """Writes into a buffer and draws a random number in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(16, 24), nn.Linear(24, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.c(torch.relu(self.a(x)))


def test_random_numbers_and_buffers_are_left_alone() -> None:
    model = Counting()
    state = torch.get_rng_state()
    loader = DataLoader(TensorDataset(X), batch_size=50)
    small = compress(model, loader, flops=0.5).model
    agreement(model, small, loader)
    assert torch.equal(state, torch.get_rng_state())
    assert float(model.calls) == 0


def test_loading_into_a_model_without_memory(tmp_path: Path) -> None:
    result = compress(mlp(), X, flops=0.5, refit=False)
    result.save(tmp_path / "small")
    with torch.device("meta"):
        empty = nn.Sequential(
            nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 6)
        )
    assert torch.equal(load(tmp_path / "small", empty)(X), result.model(X))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) + 0.0 * y[:, None]


def test_labels_are_labels() -> None:
    two, model = Two(), mlp()
    assert agreement(two, two, (X, torch.arange(200) % 4)).accuracy is None
    sevens = torch.full((100,), 7)
    assert agreement(model, model, [(X[:100], sevens), (X[100:],)]).accuracy == (0.0, 0.0)
    column = torch.zeros(200, 1, dtype=torch.long)
    assert agreement(model, model, X, labels=column).accuracy is not None
    assert agreement(model, model, X, labels=[0] * 200).accuracy is not None
    with pytest.raises(DataError, match=r"labels of shape \(100, 2\)"):
        agreement(model, model, X, labels=torch.zeros(200, 2))


def test_networks_that_give_nan_do_not_agree() -> None:
    broken = mlp()
    nn.init.constant_(broken[4].weight, math.nan)
    for pair in ((broken, mlp()), (mlp(), broken), (broken, broken)):
        with pytest.raises(DataError, match="output holds NaN"):
            agreement(*pair, X)


def test_several_decisions_per_example_do_not_shrink_the_interval_to_nothing() -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 6))
    ids = torch.randint(50, (5, 12))
    low, high = agreement(model, model, ids).interval or (1.0, 1.0)
    assert low < 0.7
    assert high == 1.0


def test_a_tuple_is_one_batch() -> None:
    with pytest.raises(ArgumentError, match="pass a list of batches"):
        compress(mlp(), (X[:100], X[100:]), flops=0.5)


def test_loaders_are_read_in_order_with_as_many_examples() -> None:
    data = TensorDataset(X, torch.zeros(200).long())
    some = DataLoader(data, sampler=RandomSampler(data, num_samples=40), batch_size=20)
    assert CalibrationSet(some, mlp()).count() == 40
    whole = DataLoader(data, shuffle=True, drop_last=True, batch_size=150)
    assert CalibrationSet(whole, mlp()).count() == 150


def test_data_that_change_after_the_first_batch_are_noticed() -> None:
    class Changing:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([X[:50], X[50:][torch.randperm(150)]])

    with pytest.raises(ArgumentError, match=r"change each time they are read \(batch 1"):
        compress(mlp(), Changing(), flops=0.5)


def test_nan_in_the_first_batch_is_called_so() -> None:
    bad = X.clone()
    bad[3, 0] = math.nan
    with pytest.raises(interpress.InterpressError, match="NaN"):
        compress(mlp(), bad, flops=0.5)


def test_kind_decisions_is_for_whole_numbers() -> None:
    with pytest.raises(ArgumentError, match="kind='decisions'"):
        compress(mlp(), X, flops=0.6, kind="decisions")


def test_a_loaded_analysis_takes_other_data(tmp_path: Path) -> None:
    class Log(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.c = nn.Linear(16, 24), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.relu(self.a(torch.log(x))))

    model, data = Log(), X.abs() + 0.1
    analyze(model, data).save(tmp_path / "a.safetensors")
    few = Analysis.load(tmp_path / "a.safetensors", model, data[:5], memory=1e-9)
    assert few.compress(flops=0.5).flops <= 0.5
    assert Analysis.load(tmp_path / "a.safetensors", model).compress(
        flops=0.5, refit=False, allocation="marginal"
    )


BAD = {
    "seed": ["a", 1.5, True, 2**70, -1],
    "memory": ["a", math.nan, math.inf, None, -1, 0],
    "step": ["a", 0, 1],
    "forward": [3],
    "round_to": [0, 1.5],
    "min_width": [0],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_bad_options_are_named_before_data_are_read(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"{name}="):
        compress(mlp(), X, flops=0.5, **{name: value})  # type: ignore[arg-type]


def test_batches_of_other_lengths_are_told_to_be_padded() -> None:
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6))
    batches = [torch.randint(50, (20, length)) for length in (5, 7)]
    with pytest.raises(DataError, match="pad or crop all batches to one"):
        compress(model, batches, flops=0.5)

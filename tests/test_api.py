"""`compress` from end to end, mostly on small networks trained on real digits."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.digits import Trained, assert_untouched, state_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import interpress
from interpress import (
    METHODS,
    Analysis,
    ArgumentError,
    DataError,
    MemorizedWarning,
    Method,
    agreement,
    compress,
)
from interpress.data.calibration_set import CalibrationSet
from interpress.data.sources import BATCH
from interpress.extend import ALLOCATIONS

CUT = Method(refit=False)
X = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))


def mlp() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 6)
    ).eval()


def test_half_of_the_flops_decides_the_same(digits: Trained) -> None:
    model = digits.fresh()
    model.inner.train()
    model.hidden.weight.requires_grad_(False)
    before = state_of(model)
    result = compress(model, digits.calibration, flops=0.5)
    assert_untouched(model, before)
    assert 0.485 <= result.flops <= 0.5
    assert type(result.model) is type(model)
    model.eval()
    measured = agreement(model, result.model, (digits.test, digits.labels))
    assert float(measured) > 0.985
    assert result.agreement is not None
    assert result.agreement.examples == 60
    assert result.network.proof.difference < 1e-9
    for row in result.plan:
        assert row.after == len(row.kept) <= row.before
        assert row.ratio >= 0.999
        assert (row.error > 0) == (row.after < row.before)


def test_methods_rank_as_they_should(digits: Trained, analysis: Analysis) -> None:
    divergence = {}
    for method in METHODS:
        result = analysis.compress(flops=0.3, method=method)
        assert 0.29 <= result.flops <= 0.3
        divergence[method] = agreement(digits.model, result.model, digits.test).divergence or 0.0
    ours = divergence.pop("preserve")
    assert ours < 0.5 * min(divergence.values())


@pytest.mark.parametrize("selection", ["pivoting", "weights", "patches"])
@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_every_part_can_be_switched_by_name(
    analysis: Analysis, selection: str, allocation: str
) -> None:
    method = Method(selection=selection, allocation=allocation, refit=False)
    result = analysis.compress(flops=0.5, method=method)
    assert 0.485 <= result.flops <= 0.5
    assert result.method == method
    assert result.orders.selection == selection
    assert result.network.refit is None


def test_same_seed_same_bits(digits: Trained) -> None:
    first, second, other = (
        compress(digits.fresh(), digits.calibration, flops=0.4, seed=seed) for seed in (3, 3, 4)
    )
    a, b, c = (result.model.state_dict() for result in (first, second, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(a[name].shape != c[name].shape or not torch.equal(a[name], c[name]) for name in a)


def test_widths_can_be_rounded_bounded_and_excluded(digits: Trained) -> None:
    result = compress(digits.model, digits.calibration, flops=0.5, round_to=8, min_width=16,
                      exclude=["hidden", "stem.*"], method=CUT)  # fmt: skip
    assert result.flops <= 0.5
    for row in result.plan:
        assert row.after % 8 == 0
        assert row.after >= 16
    assert "stem.0" not in result.widths
    assert torch.equal(result.model.stem[0].weight, digits.model.stem[0].weight)
    assert any("exclude" in (space.frozen or "") for space in result.spaces.frozen)


@pytest.mark.parametrize("budget", [{"width": 0.5}, {"error": 1e-7}])
def test_planted_redundancy_is_found_and_removed_exactly(
    digits: Trained, budget: dict[str, float]
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).double().eval()
    with torch.no_grad():
        model[0].weight[24:] = 2.0 * model[0].weight[:24]
        model[0].bias[24:] = 2.0 * model[0].bias[:24]
    result = compress(model, digits.calibration.flatten(1), **budget)
    assert result.widths == {"0": 24}
    test = digits.test.flatten(1).double()
    torch.testing.assert_close(result.model(test), model(test), atol=1e-9, rtol=1e-9)


def test_memorised_calibration_is_noticed(digits: Trained) -> None:
    certain = copy.deepcopy(digits.model)
    with torch.no_grad():
        certain.out.weight *= 8
        certain.out.bias *= 8
    with pytest.warns(MemorizedWarning, match="typical of training data") as caught:
        compress(certain, digits.train, flops=0.8, method=CUT)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compress(digits.model, digits.calibration, flops=0.8, method=CUT)
    assert result.agreement is not None
    assert result.agreement.confidence is not None
    assert result.agreement.confidence < 0.99


def test_a_regression_is_judged_by_its_output_error(digits: Trained) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    result = compress(model, digits.calibration, flops=0.6)
    assert result.agreement is not None
    assert result.agreement.output_error is not None
    assert "output error" in result.summary()


def test_wrapped_models_and_odd_calls(digits: Trained) -> None:
    model = digits.fresh()
    wrapped = nn.DataParallel(model) if not torch.cuda.is_available() else model
    result = compress(wrapped, digits.calibration, flops=0.6, method=CUT)
    assert type(result.model) is type(model)
    loader = [{"pixels": batch, "label": torch.zeros(len(batch))}
              for batch in digits.calibration.split(BATCH)]  # fmt: skip
    again = compress(model, loader, flops=0.6, method=CUT,
                     forward=lambda network, batch: network(batch["pixels"]))  # fmt: skip
    assert result.widths == again.widths


@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")  # on images of noise
def test_held_out_examples_do_not_choose_widths_or_weights(digits: Trained) -> None:
    """Of one allocation, that is; with "best" they choose between several."""
    method = replace(CUT, allocation="measured")
    images = digits.calibration
    held = CalibrationSet(images, digits.model)._members("held", 0, len(images))
    other = images.clone()
    other[held] = torch.rand(len(held), 1, 8, 8, generator=torch.Generator().manual_seed(9))
    first, second = (
        compress(digits.model, data, flops=0.4, method=method) for data in (images, other)
    )
    assert first.widths == second.widths
    a, b = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


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
    assert float(agreement(mlp(), result.model, OFFSETS[name])) > 0.9


def test_a_dead_layer() -> None:
    model = mlp()
    nn.init.zeros_(model[0].weight)
    result = compress(model, X, flops=0.6)
    torch.testing.assert_close(result.model(X), model(X), atol=1e-4, rtol=1e-4)


def test_a_language_model_with_its_default_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=32, bos_token_id=1,
        eos_token_id=1,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(64, (60, 10), generator=torch.Generator().manual_seed(0))
    result = compress(model, {"input_ids": ids}, flops=0.9, method=CUT)
    labels = torch.full_like(ids, -100)
    measured = agreement(model, result.model, {"input_ids": ids, "labels": labels})
    assert measured.decisions == 600
    assert measured.accuracy is None  # -100 is no label


class Counting(nn.Module):
    """Writes into a buffer in every forward."""

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


@pytest.mark.parametrize("when", [1, 3, 9])
def test_an_interrupt_leaves_the_model_as_it_was(digits: Trained, when: int) -> None:
    model = digits.fresh().train()
    before = state_of(model)
    calls = 0

    class Data:
        def __iter__(self) -> Iterator[Tensor]:
            nonlocal calls
            for batch in digits.calibration.split(50):
                calls += 1
                if calls > 2 * when:
                    raise KeyboardInterrupt
                yield batch

    with pytest.raises(KeyboardInterrupt):
        compress(model, Data(), flops=0.5)
    assert_untouched(model, before)


class Logarithm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.log(self.a(x)))


class Shuffled:
    """Changes after the first batch."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter([X[:50], X[50:][torch.randperm(150)]])


def words() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6))


SMALL = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
WITH_NAN = torch.cat([X[:3], torch.full((1, 16), math.nan), X[4:40]])
DATA: dict[str, tuple[Callable[[], nn.Module], Any, type[Exception], str]] = {
    "empty": (mlp, [], DataError, "empty"),
    "NaN inside": (Logarithm, X, DataError, "NaN"),
    "NaN in the data": (mlp, WITH_NAN, interpress.InterpressError, "NaN"),
    "wrong shape": (mlp, torch.randn(40, 15), interpress.CaptureError, "16"),
    "mixed shapes": (mlp, [torch.randn(20, 16), torch.randn(20, 15)], DataError,
                     r"shape \(16, 15\).*captured for"),
    "a tuple of batches": (mlp, (X[:100], X[100:]), ArgumentError, "pass a list of batches"),
    "shuffled": (mlp, Shuffled(), ArgumentError, r"change each time they are read \(batch 1"),
    "text": (mlp, "folder", ArgumentError, "the calibration data are a str"),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_bad_data_are_refused_and_the_model_is_left_alone(name: str) -> None:
    build, data, kind, message = DATA[name]
    model = build()
    before = state_of(model)
    with pytest.raises(kind, match=message):
        compress(model, data, flops=0.9)
    assert_untouched(model, before)


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")
@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_fewer_rows_than_channels_give_a_network(count: int) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    result = compress(model, X[:count], flops=0.7)
    assert result.flops <= 0.7
    assert result.network.proof.difference < 1e-4


@pytest.mark.parametrize("lengths", [(5, 7), (7, 5)])
def test_batches_of_several_lengths_give_a_network(lengths: tuple[int, int]) -> None:
    model = words()
    result = compress(model, [torch.randint(50, (20, length)) for length in lengths], flops=0.9)
    assert result.flops <= 0.9
    for length in (4, 9):
        tokens = torch.randint(50, (3, length))
        assert result.model(tokens).shape == model(tokens).shape


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no budget": ({"flops": None}, r"exactly one budget of .*flops, .*params.*got none"),
    "two budgets": ({"width": 0.5}, r"flops=0\.5 and width=0\.5"),
    "an old part": ({"selection": "l1"}, "selection= is not an argument"),
    "unreachable": ({"min_width": 31},
                    r"flops=0.5 cannot be reached.*0.969 of .*1 space can shrink, 1 stays whole"),
    "all excluded": ({"exclude": ["0"]}, "nothing in this model can shrink.*output of the model"),
    "unknown layer": ({"exclude": ["conv*"]}, r"'conv\*'"),
    "unknown method": ({"method": "magic"}, "method='magic' is not known; choose one of preserve"),
    "unknown kind": ({"kind": "guess"}, "kind='guess'; choose one of auto"),
    "kind of integers": ({"kind": "decisions"}, "kind='decisions' is for outputs of integers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_options_name_the_thing_the_number_and_the_remedy(name: str) -> None:
    options, message = REFUSED[name]
    before = state_of(SMALL)
    with pytest.raises(ArgumentError, match=message):
        compress(SMALL, X, **{"flops": 0.5, **options})
    assert_untouched(SMALL, before)


class Unread:
    """Data that must not be read."""

    def __iter__(self) -> Iterator[Tensor]:
        pytest.fail("the data were read")


BAD: dict[str, list[Any]] = {
    "flops": [0.0, 50, "half"],
    "seed": ["a", 1.5, True, 2**70, -1],
    "memory": ["a", math.nan, math.inf, -1, 0],
    "forward": [3],
    "round_to": [0, 1.5],
    "min_width": [0],
    "method": [None, 3, "magic"],
    "kind": ["guess", None],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_bad_values_are_refused_before_data_are_read(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name}="):
        compress(mlp(), Unread(), **{"flops": 0.5, name: value})


def test_what_is_no_module() -> None:
    with pytest.raises(ArgumentError, match=r"model is a NoneType; pass a torch\.nn\.Module"):
        compress(None, X, flops=0.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="nothing in this model can shrink"):
        compress(nn.Sequential(nn.Linear(16, 10)), X, flops=0.5)


def test_only_an_analysis_keeps_what_other_budgets_need(digits: Trained) -> None:
    analysis = interpress.analyze(digits.model, digits.calibration, progress=False)
    assert analysis.study.outputs is not None
    assert analysis.study.outputs.usable
    result = interpress.compress(digits.model, digits.calibration, flops=0.6, progress=False)
    assert result.study.outputs is not None
    assert not result.study.outputs.usable


def test_autocast_around_a_call_changes_nothing(digits: Trained) -> None:
    plain = interpress.compress(digits.model, digits.calibration, flops=0.6)
    with torch.autocast("cpu", torch.bfloat16):
        result = interpress.compress(digits.model, digits.calibration, flops=0.6)
        interpress.find_spaces(digits.model, digits.calibration[:4])
        assert torch.is_autocast_enabled("cpu")
    assert result.widths == plain.widths


def test_a_default_device_is_for_the_users_code_only(digits: Trained) -> None:
    plain = interpress.compress(digits.model, digits.calibration, flops=0.6)
    torch.set_default_device("meta")
    try:
        result = interpress.compress(digits.model, digits.calibration, flops=0.6)
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
    assert result.widths == plain.widths


def test_the_reasons_why_nothing_can_shrink_are_in_the_error() -> None:
    class Film(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(8, 24), nn.ModuleList(nn.Linear(12, 3) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.a(x).chunk(2, 1)
            return self.o[0](first.relu()) + self.o[1](second.relu())

    with pytest.raises(ArgumentError, match="a: no layer reads all of its channels"):
        interpress.compress(Film(), torch.randn(40, 8), flops=0.5)


def test_a_model_without_layers_is_refused_in_words() -> None:
    with pytest.raises(ArgumentError, match="it has no layer that makes channels"):
        interpress.compress(nn.Identity(), torch.randn(20, 4), flops=0.5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 9, 9, 3),), "channels last, give images.permute"),
        (((4, 16), (2, 40)), "first dims of the inputs are 4 and 2"),
    ],
)
def test_inputs_that_do_not_fit_are_explained(
    shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    class Picky(nn.Conv2d):
        def forward(self, image: Tensor, *others: Tensor) -> Tensor:
            return super().forward(image)

    with pytest.raises(interpress.CaptureError, match=message):
        interpress.find_spaces(Picky(3, 8, 3), tuple(torch.randn(shape) for shape in shapes))

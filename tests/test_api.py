"""`compress` and `analyze` from end to end, on a small network trained on real digits."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.compress.conftest import DigitNet, Trained
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import interpress
from interpress import Analysis, ArgumentError, DataError, MemorizedWarning, agreement, compress
from interpress.calibration.calibrate import calibrate
from interpress.data.calibration_set import CalibrationSet
from interpress.data.sources import BATCH
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Tally
from interpress.graph.example import Example
from interpress.method import METHODS
from interpress.network.build import loss_of
from interpress.spaces.batching import examples_per_batch
from interpress.surgery.interpolations import interpolations


def state_of(model: nn.Module) -> dict[str, Any]:
    tensors = {n: t.clone() for n, t in [*model.named_parameters(), *model.named_buffers()]}
    return {
        "tensors": tensors,
        "grads": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_pre_hooks) for module in model.modules()],
        "sizes": [
            {k: v for k, v in vars(module).items() if isinstance(v, int | tuple)}
            for module in model.modules()
        ],
    }


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    after = state_of(model)
    for name, tensor in before.pop("tensors").items():
        assert torch.equal(after["tensors"][name], tensor), name
    after.pop("tensors")
    assert after == before


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
    found = agreement(model, result.model, (digits.test, digits.labels))
    assert float(found) > 0.985
    assert result.agreement is not None
    assert result.agreement.examples == 60
    assert result.built.proof.difference < 1e-9
    text = result.summary()
    assert max(map(len, text.splitlines())) <= 80
    assert "stem.0" in text
    for row in result.plan:
        assert row.after == len(row.kept) <= row.before
        assert row.ratio >= 0.999
        assert (row.error > 0) == (row.after < row.before)


def test_methods_rank_as_they_should(digits: Trained, analysis: Analysis) -> None:
    shares = {}
    for method in METHODS:
        result = analysis.compress(flops=0.3, method=method)
        assert 0.29 <= result.flops <= 0.3
        shares[method] = agreement(digits.model, result.model, digits.test).divergence
    assert shares["preserve"] < 0.5 * min(shares["iterative-id"], shares["constant-id"])


@pytest.mark.parametrize("selection", ["pivoting", "weights", "patches"])
@pytest.mark.parametrize("allocation", ["constant", "iterative", "marginal", "measured"])
def test_every_part_can_be_switched_by_name(
    analysis: Analysis, selection: str, allocation: str
) -> None:
    result = analysis.compress(flops=0.5, selection=selection, allocation=allocation, refit=False)
    assert 0.485 <= result.flops <= 0.5
    assert (result.method.selection, result.method.allocation) == (selection, allocation)
    assert result.built.refit is None


def test_refit_lowers_the_divergence_or_is_not_kept(digits: Trained, analysis: Analysis) -> None:
    plain = analysis.compress(flops=0.3, refit=False)
    result = analysis.compress(flops=0.3)
    assert plain.agreement is not None
    assert result.agreement is not None
    assert plain.agreement.divergence is not None
    assert result.built.refit_kept
    assert result.agreement.divergence < 0.8 * plain.agreement.divergence
    assert result.built.refit is not None
    before_after = result.built.refit.errors
    assert {"inner.0.weight", "hidden.weight", "out.weight"} <= set(before_after)
    assert all(after <= before for before, after in before_after.values())
    whole = analysis.compress(width=1.0)
    assert not whole.built.refit_kept
    assert torch.equal(whole.model(digits.test), digits.model(digits.test))


def test_same_seed_same_bits(digits: Trained) -> None:
    first, second, other = (
        compress(digits.fresh(), digits.calibration, flops=0.4, seed=seed) for seed in (3, 3, 4)
    )
    a, b, c = (result.model.state_dict() for result in (first, second, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(a[name].shape != c[name].shape or not torch.equal(a[name], c[name]) for name in a)


@pytest.mark.parametrize(("kind", "value"), [("params", 0.4), ("width", 0.6)])
def test_parameters_and_width(analysis: Analysis, kind: str, value: float) -> None:
    result = analysis.compress(**{kind: value})
    if kind == "params":
        assert 0.99 * value <= result.params <= value
    else:
        sizes = {row.name: (row.before, row.after) for row in result.plan}
        assert all(after == -(-before * 6 // 10) for before, after in sizes.values())
    counted = sum(p.numel() for p in result.model.parameters())
    assert counted == result.after.parameters


def test_error_is_certified_at_every_tap(digits: Trained, analysis: Analysis) -> None:
    from interpress.surgery.projection_identity import measure_taps

    result = analysis.compress(error=0.15)
    assert not result.method.refit
    assert any(row.after < row.before for row in result.plan)
    assert all(row.error <= 0.15 for row in result.plan)
    cut = result.built.cut
    fit = torch.cat([e.args[0] for e in analysis._knowledge.data().batches("fit")])
    for tap, Z in measure_taps(analysis.spaces, fit, list(cut.T)).items():
        Z, T = Z.double(), cut.T[tap].double()
        left = Z - Z[:, cut.columns(analysis.spaces.taps[tap])] @ T
        assert torch.linalg.matrix_norm(left, 2) <= 0.152 * torch.linalg.matrix_norm(Z, 2)
    tighter = analysis.compress(error=0.05)
    assert tighter.flops > result.flops


def test_agreement_finds_a_smaller_network_that_holds(analysis: Analysis) -> None:
    result = analysis.compress(agreement=0.98)
    assert result.flops < 0.7
    assert result.agreement is not None
    assert float(result.agreement) >= 0.98
    looser = analysis.compress(agreement=0.9, method="iterative-id")
    assert float(looser.agreement or 0) >= 0.9


def test_latency_is_measured(digits: Trained) -> None:
    result = compress(DigitNet(width=96).eval(), digits.train, latency=0.8, refit=False)
    assert result.latency is not None
    assert result.latency <= 0.8
    assert result.flops < 0.9


def test_widths_can_be_rounded_bounded_and_excluded(digits: Trained) -> None:
    result = compress(digits.model, digits.calibration, flops=0.5, round_to=8, min_width=16,
                      exclude=["hidden", "stem.*"], refit=False)  # fmt: skip
    assert result.flops <= 0.5
    for row in result.plan:
        assert row.after % 8 == 0
        assert row.after >= 16
    assert "stem.0" not in result.widths
    assert torch.equal(result.model.stem[0].weight, digits.model.stem[0].weight)
    assert any("exclude" in (s.frozen or "") or "pattern" in (s.frozen or "")
               for s in result.spaces.frozen)  # fmt: skip


def test_planted_redundancy_is_found_and_removed_exactly(digits: Trained) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).double().eval()
    with torch.no_grad():
        model[0].weight[24:] = 2.0 * model[0].weight[:24]
        model[0].bias[24:] = 2.0 * model[0].bias[:24]
    for options in ({"width": 0.5}, {"error": 1e-7}):
        result = compress(model, digits.calibration.flatten(1), **options)
        assert result.widths == {"0": 24}
        torch.testing.assert_close(
            result.model(digits.test.flatten(1).double()), model(digits.test.flatten(1).double()),
            atol=1e-9, rtol=1e-9,
        )  # fmt: skip


def test_the_literal_loop_comes_to_a_like_network(digits: Trained, analysis: Analysis) -> None:
    one_pass = analysis.compress(flops=0.5, method="iterative-id", step=0.1)
    literal = analysis.compress(flops=0.5, method="iterative-id", step=0.1, recompute=True)
    for result in (one_pass, literal):
        assert 0.47 <= result.flops <= 0.5
        assert float(agreement(digits.model, result.model, digits.test)) > 0.9
    assert literal.built.proof.difference < 1e-9
    with pytest.raises(ArgumentError, match="literal loop of iterative-id"):
        analysis.compress(flops=0.5, recompute=True)


def test_the_curve_falls_and_fits_what_budgets_give(analysis: Analysis) -> None:
    curve = analysis.curve()
    assert curve[0].flops == curve[0].params == 1.0
    assert curve[0].loss == 0.0
    assert len(curve) > 30
    for a, b in itertools.pairwise(curve):
        assert b.flops < a.flops
        assert b.loss >= a.loss
    half = analysis.compress(flops=0.5, refit=False)
    near = min(curve, key=lambda point: abs(point.flops - 0.5))
    assert sum(abs(near.widths[n] - w) for n, w in half.widths.items()) < 0.2 * sum(
        half.widths.values()
    )


def test_memorised_calibration_is_noticed(digits: Trained) -> None:
    certain = copy.deepcopy(digits.model)
    with torch.no_grad():
        certain.out.weight *= 8
        certain.out.bias *= 8
    with pytest.warns(MemorizedWarning, match="as on data it was trained on"):
        compress(certain, digits.train, flops=0.8, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compress(digits.model, digits.calibration, flops=0.8, refit=False)


def test_looking_at_a_network_in_double_precision_does_not_change_what_it_computes() -> None:
    torch.manual_seed(0)
    sizes = (12, 24, 16, 4)
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    model, x = nn.Sequential(*layers).double(), torch.randn(300, 12, dtype=torch.float64)
    found = {}
    for dtype in (torch.float64, torch.float32):
        seen = interpress.analyze(model.to(dtype), x.to(dtype), progress=False)._knowledge.seen
        found[dtype] = [f.G.trace() for f in seen.factors.values()], [*seen.energies.values()]
    for exact, rounded in zip(*found.values(), strict=True):
        assert len(exact) == 2
        assert torch.tensor(exact) == pytest.approx(torch.tensor(rounded), rel=1e-4)


class Wide(nn.Module):
    """A layer that is read at every position, and a wide one that is read once per image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 24, 3), nn.Conv2d(24, 64, 3)
        self.last = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu()).relu()
        return self.last(x.mean((2, 3)))


def test_the_remedy_for_too_few_rows_is_one() -> None:
    torch.manual_seed(0)
    model, images = Wide(), torch.randn(40, 3, 8, 8)
    with pytest.raises(DataError, match=r"exclude=\['last'\]"):
        compress(model, images, flops=0.9, allocation="iterative")
    result = compress(model, images, flops=0.9, allocation="iterative", exclude=["last"])
    assert result.model.second.out_channels == 64
    assert result.model.first.out_channels < 24


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.log(self.a(x)))


X = torch.randn(40, 64)
MLP = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
ERRORS: dict[str, tuple[nn.Module, Any, dict[str, Any], type[Exception], str]] = {
    "no budget": (MLP, X, {}, ArgumentError, "exactly one budget of flops, params.*got none"),
    "two budgets": (MLP, X, {"flops": 0.5, "width": 0.5}, ArgumentError, "flops=0.5 and width=0.5"),
    "zero": (MLP, X, {"flops": 0.0}, ArgumentError, "flops=0.0 is out of range"),
    "above one": (MLP, X, {"params": 50}, ArgumentError, "params=50 is out of range"),
    "no number": (MLP, X, {"flops": "half"}, ArgumentError, "flops='half' is out of range"),
    "unreachable": (MLP, X, {"flops": 0.5, "min_width": 31}, ArgumentError,
                    r"flops=0.5 cannot be reached.*0.969 of the flops.*1 spaces can shrink"),
    "empty": (MLP, [], {"flops": 0.5}, DataError, "empty"),
    "few rows": (MLP, X[:10], {"flops": 0.9}, DataError,
                 r"space '0' keeps 28 columns.*only 8 rows.*25 more examples.*exclude=\['2'\]"),
    "not a number": (Broken(), X, {"flops": 0.5}, DataError, "NaN"),
    "wrong shape": (MLP, torch.randn(40, 63), {"flops": 0.5}, interpress.CaptureError, "64"),
    "mixed shapes": (MLP, [torch.randn(20, 64), torch.randn(20, 63)], {"flops": 0.5}, DataError,
                     r"shape \(16, 63\).*captured for"),
    "nothing shrinkable": (nn.Sequential(nn.Linear(64, 10)), X, {"flops": 0.5}, ArgumentError,
                           "nothing in this model can shrink.*output of the model"),
    "all excluded": (MLP, X, {"flops": 0.5, "exclude": ["0"]}, ArgumentError, "nothing in this"),
    "unknown method": (MLP, X, {"flops": 0.5, "method": "magic"}, ArgumentError,
                       "method='magic' is not known; choose one of preserve"),
    "unknown part": (MLP, X, {"flops": 0.5, "selection": "luck"}, ArgumentError, "=.luck. is"),
    "bad rounding": (MLP, X, {"flops": 0.5, "round_to": 0}, ArgumentError, "round_to=0"),
    "bad step": (MLP, X, {"flops": 0.5, "step": 2}, ArgumentError, "step=2"),
    "no module": (None, X, {"flops": 0.5}, ArgumentError, "expected an nn.Module"),  # type: ignore[dict-item]
    "unknown layer": (MLP, X, {"flops": 0.5, "exclude": ["conv*"]}, ArgumentError, "'conv\\*'"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_thing_the_number_and_the_remedy(name: str) -> None:
    model, data, options, kind, message = ERRORS[name]
    before = state_of(model) if isinstance(model, nn.Module) else None
    with pytest.raises(kind, match=message):
        compress(model, data, **options)
    if before is not None:
        assert_untouched(model, before)


@pytest.mark.parametrize("when", [1, 3, 9])
def test_an_interrupt_leaves_the_model_as_it_was(digits: Trained, when: int) -> None:
    model = digits.fresh().train()
    before = state_of(model)
    calls = 0

    def interrupting() -> Any:
        nonlocal calls
        for batch in digits.calibration.split(50):
            calls += 1
            if calls > 2 * when:
                raise KeyboardInterrupt
            yield batch

    class Data:
        def __iter__(self) -> Any:
            return interrupting()

    with pytest.raises(KeyboardInterrupt):
        compress(model, Data(), flops=0.5)
    assert_untouched(model, before)


def test_agreement_that_cannot_be_held_says_how_near_it_came(digits: Trained) -> None:
    noise = nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.Linear(2, 10)).eval()
    with torch.no_grad():  # the first neuron decides between two classes, the second as well
        noise[2].weight.zero_()
        noise[2].weight[:4] = torch.tensor([[9.0, 0], [-9, 0], [0, 9], [0, -9]])
        noise[2].bias.zero_()
    with pytest.raises(ArgumentError, match=r"agreement=1 cannot be held.*reached 0\."):
        compress(noise, digits.calibration, agreement=1.0, refit=False)
    regression = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    with pytest.raises(ArgumentError, match="needs a network that decides"):
        compress(regression, digits.calibration, agreement=0.9)
    result = compress(regression, digits.calibration, flops=0.6)
    assert result.agreement is not None
    assert result.agreement.output_error is not None
    assert "output error" in result.summary()


def test_wrapped_models_and_odd_calls(digits: Trained) -> None:
    model = digits.fresh()
    wrapped = nn.DataParallel(model) if not torch.cuda.is_available() else model
    result = compress(wrapped, digits.calibration, flops=0.6, refit=False)
    assert type(result.model) is type(model)
    loader = [{"pixels": batch, "label": torch.zeros(len(batch))}
              for batch in digits.calibration.split(BATCH)]  # fmt: skip
    again = compress(model, loader, flops=0.6, refit=False,
                     forward=lambda network, batch: network(batch["pixels"]))  # fmt: skip
    assert result.widths == again.widths


def test_dead_channels_that_are_kept_do_not_spoil_the_others() -> None:
    """Kept columns may depend on each other; T is then as good as without the superfluous ones."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    with torch.no_grad():
        network[0].bias[2] = -1e3  # never speaks
        network[0].weight[5], network[0].bias[5] = network[0].weight[4], network[0].bias[4]
    spaces = interpress.find_spaces(network, torch.randn(4, 6))
    data = torch.randn(500, 6)
    seen = calibrate(spaces, [Example.of(data)])
    (space,), (tap,) = spaces.shrinkable, spaces.taps
    Z = network[1](network[0](data)).detach().double()
    for kept in ([2], [2, 4, 5, 7], [0, 1, 4, 5, 8, 9]):
        T = interpolations(spaces, {space.name: torch.tensor(kept)}, seen.factors)[tap]
        best = torch.linalg.lstsq(Z[:, kept], Z, driver="gelsd").solution
        error, least = ((Z - Z[:, kept] @ M).norm() for M in (T, best))
        assert error <= least * (1 + 1e-6)
        assert torch.equal(T[:, kept], torch.eye(len(kept), dtype=T.dtype))


@pytest.mark.parametrize(
    ("expected", "patches", "rows"),
    [(200, False, 16), (500, False, 7), (9000, False, 4), (None, False, 16), (9000, True, 16)],
)
def test_no_more_rows_are_taken_than_channels_need_and_as_many_of_every_example(
    expected: int | None, patches: bool, rows: int
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 512, 1), nn.ReLU(), nn.Conv2d(512, 4, 1)).eval()
    images = torch.randn(50, 3, 8, 8)
    spaces = interpress.find_spaces(network, images[:2])
    seen = calibrate(spaces, [Example.of(images)] * 2, patches=patches, expected=expected)
    assert [factor.rows for factor in seen.factors.values()] == [100 * rows]


def uncounted() -> Iterator[torch.Tensor]:
    yield from torch.ones(60, 6).split(20)


class Endless:
    """Batches that nobody has counted."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return uncounted()


@pytest.mark.parametrize(
    ("source", "examples"),
    [
        (torch.randn(1000, 6), 800),
        ((torch.randn(1000, 6), torch.zeros(1000)), 800),
        ([torch.randn(50, 6), torch.randn(5, 6), torch.randn(5, 6)], 48),  # not like the first
        ([{"input": torch.randn(20, 6)}] * 3, 48),
        (uncounted(), 48),  # can be read only once, and is kept
        (DataLoader(TensorDataset(torch.randn(60, 6)), batch_size=7), 48),
        (Endless(), None),
    ],
)
def test_how_many_examples_there_are_is_seen_without_reading_them_or_not_guessed(
    source: object, examples: int | None
) -> None:
    assert CalibrationSet(source, nn.Linear(6, 2)).expected() == examples


def test_a_refit_is_not_undone_by_one_example_of_many() -> None:
    """Two hundred examples: nearly all come closer, one goes astray."""
    judge = OutputMeaning(0, "classification")
    original = torch.tensor([[2.0, 0.0]]).repeat(200, 1)
    plain, better = original + torch.tensor([0.0, 0.5]), original + torch.tensor([0.0, 0.1])
    better[7] = torch.tensor([0.0, 9.0])
    tallies = [Tally(judge), Tally(judge)]
    for tally, other in zip(tallies, (plain, better), strict=True):
        tally.add(original, other)
    before, after = (tally.result() for tally in tallies)
    assert before.divergence is not None
    assert after.divergence is not None
    assert after.divergence > before.divergence
    assert loss_of(after) < loss_of(before)
    better[:40] = torch.tensor([0.0, 9.0])
    ruined = Tally(judge)
    ruined.add(original, better)
    assert loss_of(ruined.result()) > loss_of(before)


@pytest.mark.parametrize("most", [None, 60, 16, 1])
@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
def test_held_out_examples_come_in_order_and_no_more_than_asked_for_at_once(
    batch: int, most: int | None
) -> None:
    everything = torch.arange(1000.0)[:, None].expand(-1, 6)
    data = CalibrationSet(list(everything.split(batch)), nn.Linear(6, 2))
    found = [example.args[0] for example in data.gathered("held", most)]
    wanted = torch.cat([example.args[0] for example in data.batches("held")])
    assert torch.equal(torch.cat(found), wanted)
    if most is not None:
        assert max(map(len, found)) <= most


def test_on_a_cpu_as_many_examples_run_at_once_as_memory_is_kept_for() -> None:
    small = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    images = torch.randn(4, 3, 32, 32)
    spaces = interpress.find_spaces(small, images)
    assert examples_per_batch(spaces, torch.device("cpu")) == 2**24 // (8 * 32 * 32 * 4)
    assert examples_per_batch(spaces, torch.device("cuda")) is None
    large = interpress.find_spaces(small, torch.randn(2, 3, 256, 256))
    assert examples_per_batch(large, torch.device("cpu")) == 16

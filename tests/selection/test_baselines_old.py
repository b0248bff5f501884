"""Baseline selections: each chooses by what it says it chooses by."""

from __future__ import annotations

import itertools

import pytest
import torch
from interpress.selection.registry import selections
from tests.compress.conftest import Trained
from torch import Tensor, nn

import interpress
from interpress import Analysis, ArgumentError
from interpress.selection.profile import Profile
from interpress.selection.rules.thinet import _greedy

BASELINES = ("random", "l1", "l2", "soft", "fpgm", "bn-scale", "thinet", "hrank", "pfp")


@pytest.fixture(scope="module")
def analysis(digits: Trained) -> Analysis:
    return interpress.analyze(digits.fresh(), digits.calibration)


def profile_of(analysis: Analysis, name: str) -> Profile:
    return analysis._knowledge.profiles[name]


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_orders_every_channel_once_and_corrected_it_does_better(
    name: str, analysis: Analysis, digits: Trained
) -> None:
    for profile in analysis._knowledge.profiles.values():
        chosen = selections()[name](profile)
        assert sorted(chosen.units.tolist()) == list(range(profile.space.size))
        assert len(chosen.proxy) == profile.space.size + 1
    parts = {"selection": name, "allocation": "constant", "refit": False, "progress": False}
    plain, corrected = (
        analysis.compress(flops=0.5, correct=correct, **parts)  # type: ignore[arg-type]
        for correct in (False, True)
    )
    assert plain.widths == corrected.widths
    assert plain.plan[0].kept == corrected.plan[0].kept
    model = analysis._knowledge.model
    apart = [
        interpress.agreement(model, result.model, digits.test).divergence
        for result in (plain, corrected)
    ]
    assert apart[1] < apart[0]


def test_without_correction_readers_just_lose_the_dropped_channels(
    analysis: Analysis, digits: Trained
) -> None:
    result = analysis.compress(
        flops=0.6, selection="l1", allocation="constant", refit=False, correct=False
    )
    kept = {space.name: list(space.kept) for space in result.plan}
    expected = interpress.shrink(result.spaces, kept)
    with torch.no_grad():
        assert torch.equal(result.model(digits.test), expected(digits.test))


def test_magnitude_keeps_the_largest_filters(analysis: Analysis) -> None:
    weight = dict(analysis._knowledge.model.named_parameters())["inner.0.weight"].detach()
    (rows,) = profile_of(analysis, "inner.0").making.filters()
    assert torch.equal(rows, weight.double().flatten(1))
    for name, p in (("l1", 1), ("l2", 2), ("soft", 2)):
        sizes = rows.norm(p, dim=1)
        units = selections()[name](profile_of(analysis, "inner.0")).units
        assert torch.equal(units, sizes.argsort(descending=True, stable=True))


def test_a_space_with_two_producers_counts_both(analysis: Analysis) -> None:
    profile = profile_of(analysis, "stem.0")  # a residual stream
    first, second = (rows.norm(dim=1) for rows in profile.making.filters())
    both = first / first.mean() + second / second.mean()
    units = selections()["l2"](profile).units
    assert torch.equal(units, both.argsort(descending=True, stable=True))


def test_scales_are_those_of_the_batch_norm_and_weights_stand_in_where_there_is_none(
    analysis: Analysis,
) -> None:
    norm = analysis._knowledge.model.get_submodule("inner.1")
    (scales,) = profile_of(analysis, "inner.0").making.scales()
    scales = scales[:, 0]
    assert torch.equal(scales, norm.weight.detach().double())  # type: ignore[union-attr,operator]
    units = selections()["bn-scale"](profile_of(analysis, "inner.0")).units
    assert torch.equal(units, scales.abs().argsort(descending=True, stable=True))
    hidden = profile_of(analysis, "hidden")
    assert hidden.making.scales() == []
    assert torch.equal(selections()["bn-scale"](hidden).units, selections()["l1"](hidden).units)


def test_fpgm_drops_the_filters_in_the_middle_first(analysis: Analysis) -> None:
    (rows,) = profile_of(analysis, "inner.0").making.filters()
    apart = torch.stack([(rows - row).norm(dim=1).sum() for row in rows])
    units = selections()["fpgm"](profile_of(analysis, "inner.0")).units
    assert torch.allclose(apart[units], apart.sort(descending=True).values)


def test_hrank_is_the_mean_rank_of_the_maps(analysis: Analysis, digits: Trained) -> None:
    profile = profile_of(analysis, "inner.0")
    look = profile.look(profile.readings[0].tap)
    model = analysis._knowledge.model
    maps = look.maps()
    with torch.no_grad():
        fitted = torch.cat(
            [e.args[0] for e in analysis._knowledge.data().batches("fit", limit=len(maps))]
        )
        expected = model.inner(model.stem(fitted))  # type: ignore[operator]
    assert torch.allclose(maps, expected, atol=1e-5)
    ranks = torch.linalg.matrix_rank(expected).double().mean(0)
    units = selections()["hrank"](profile).units
    assert torch.equal(ranks[units], ranks.sort(descending=True).values)


def test_thinet_drops_what_adds_up_to_least() -> None:
    torch.manual_seed(0)
    parts = torch.randn(200, 6, dtype=torch.float64) * torch.arange(1, 7)
    parts[:, 5] = -parts[:, 4]  # large, but nothing together
    C = parts.T @ parts
    order = _greedy(C).units.tolist()
    dropped = order[::-1]
    chosen: list[int] = []
    for unit in dropped:  # every step is the best one there is
        growths = {
            other: float(parts[:, [*chosen, other]].sum(1).square().sum())
            for other in range(6) if other not in chosen
        }  # fmt: skip
        assert growths[unit] == pytest.approx(min(growths.values()))
        chosen.append(unit)


def test_contributions_add_up_to_what_the_reader_gives(analysis: Analysis) -> None:
    from interpress.selection.contributions import patches_and_weights

    profile = profile_of(analysis, "inner.0")
    look = profile.look(profile.readings[0].tap)
    found = patches_and_weights(look, 10**9, profile.generator())
    assert found is not None
    X, W = found
    outputs = torch.einsum("rct,oct->ro", X, W)
    conv = analysis._knowledge.model.get_submodule("back.0")
    with torch.no_grad():
        expected = conv(look.operand).movedim(1, -1).flatten(0, -2)
    assert torch.allclose(outputs, expected, atol=1e-4)


def test_flattened_channels_are_gathered_for_their_reader(analysis: Analysis) -> None:
    """The linear layer after the flatten reads every channel at four places."""
    from interpress.selection.contributions import patches_and_weights

    profile = profile_of(analysis, "stem.0")
    names = [r.tap for r in profile.readings if r.tap.startswith("hidden")]
    look = profile.look(names[0])
    found = patches_and_weights(look, 10**9, profile.generator())
    assert found is not None
    X, W = found
    hidden = analysis._knowledge.model.get_submodule("hidden")
    with torch.no_grad():
        expected = nn.functional.linear(look.operand, hidden.weight)  # type: ignore[arg-type]
    assert torch.allclose(torch.einsum("rct,oct->ro", X, W), expected, atol=1e-4)
    assert X.shape[1:] == (24, 4)


def test_pfp_draws_by_the_largest_share(analysis: Analysis) -> None:
    """Channels that never matter are drawn last, whatever the seed."""
    from interpress.selection.rules.pfp import _largest_shares

    torch.manual_seed(0)
    X, W = torch.rand(20, 5, 2), torch.randn(3, 5, 2)
    W[:, 2] = 0
    shares = _largest_shares(X, W, lambda parts: parts)
    one: list[Tensor] = []
    for row, weight in itertools.product(X, W):
        for sign in (1, -1):
            parts = (sign * row * weight).clamp(min=0).sum(1)
            one.append(parts / parts.sum().clamp(min=1e-30))
    assert torch.allclose(shares, torch.stack(one).amax(0).double(), atol=1e-6)
    assert shares[2] == 0


@pytest.mark.parametrize("name", ["random", "pfp"])
def test_a_drawn_order_is_that_of_the_seed(name: str, digits: Trained) -> None:
    model = digits.fresh()

    def order(seed: int) -> list[int]:
        own = interpress.analyze(model, digits.calibration, seed=seed, patches=False)
        return selections()[name](profile_of(own, "inner.0")).units.tolist()

    assert order(0) == order(0) != order(1)


def test_looking_at_activations_needs_data(
    digits: Trained, analysis: Analysis, tmp_path: object
) -> None:
    path = f"{tmp_path}/analysis.safetensors"
    analysis.save(path)
    loaded = Analysis.load(path, digits.fresh())
    with pytest.raises(ArgumentError, match="no data to look at here"):
        loaded.compress(flops=0.5, selection="hrank", allocation="constant", refit=False)


def test_an_error_budget_cannot_go_without_the_correction(
    digits: Trained, analysis: Analysis
) -> None:
    with pytest.raises(ArgumentError, match="correct=False leaves T out"):
        analysis.compress(error=0.1, correct=False)
    with pytest.raises(ArgumentError, match="correct=False leaves T out"):
        interpress.compress(digits.fresh(), digits.calibration, error=0.1, correct=False)


@pytest.mark.parametrize("parts", [{"selection": "l1"}, {"correct": False}, {"refit": True}])
def test_the_literal_loop_takes_no_other_parts(
    analysis: Analysis, parts: dict[str, object]
) -> None:
    with pytest.raises(ArgumentError, match="none of its parts replaced"):
        analysis.compress(flops=0.5, method="iterative-id", recompute=True, **parts)  # type: ignore[arg-type]


def test_a_weight_that_reads_the_space_it_makes_counts_by_what_it_makes() -> None:
    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.more = nn.Linear(6, 8), nn.Linear(8, 8)
            self.last = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.last((x + self.more(x.relu())).relu())

    torch.manual_seed(0)
    model = Stream()
    own = interpress.analyze(model, torch.randn(80, 6), patches=False)
    (profile,) = own._knowledge.profiles.values()
    found = profile.making.filters()
    assert [tuple(rows.shape) for rows in found] == [(8, 6), (8, 8)]
    assert torch.equal(found[1], model.more.weight.detach().double())

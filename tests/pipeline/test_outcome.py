"""What is known about a compressed network."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.zoo.checks import counted_flops, parameter_count

from interpress import METHODS, Analysis, Method, Result, compress
from interpress.graph.example import Example


@pytest.fixture(scope="module")
def result(analysis: Analysis) -> Result:
    return analysis.compress(flops=0.4)


def test_costs_are_per_example_and_as_counted(result: Result) -> None:
    (few,) = result.study.few_examples(2)
    one = Example((few.args[0][:1],))
    assert result.before.flops == counted_flops(result.original, one)
    assert result.after.flops == counted_flops(result.model, one)
    assert result.before.parameters == parameter_count(result.original)
    assert result.after.parameters == parameter_count(result.model)
    assert result.flops == result.after.flops / result.before.flops
    assert result.params == result.after.parameters / result.before.parameters


def test_the_plan_says_what_was_kept_and_how_good_the_interpolation_is(result: Result) -> None:
    assert {row.name: row.after for row in result.plan} == dict(result.widths)
    for row in result.plan:
        assert row.after == len(row.kept) <= row.before
        assert list(row.kept) == result.orders[row.name].kept(row.after).tolist()
        assert (row.error > 0) == (row.after < row.before)
        assert row.error >= 0.999 * row.bound  # no rank-k approximation is better than the SVD's
        assert row.ratio == pytest.approx(row.error / row.bound if row.bound else 1.0)
    assert any(row.after < row.before for row in result.plan)


def test_an_uncut_space_has_no_error(analysis: Analysis) -> None:
    whole = analysis.compress(width=1.0)
    assert whole.flops == whole.params == 1.0
    assert all((row.error, row.ratio) == (0.0, 1.0) for row in whole.plan)


def test_the_curve_passes_by_the_result(result: Result) -> None:
    assert result.curve[0].flops == 1.0
    for wider, narrower in itertools.pairwise(result.curve):
        assert narrower.flops < wider.flops
        assert narrower.loss >= wider.loss
    assert result.point.flops == pytest.approx(result.flops, rel=1e-3)
    assert result.point.widths == result.widths
    nearest = min(result.curve, key=lambda point: abs(point.flops - result.flops))
    assert nearest.loss == pytest.approx(result.point.loss, rel=0.5)


def test_the_records_it_was_made_from_can_be_reached(analysis: Analysis, result: Result) -> None:
    assert result.study is analysis.study
    assert result.original is analysis.study.original
    assert result.spaces is analysis.spaces
    assert result.method == METHODS["preserve"]
    assert result.options.budget is result.budget
    assert result.model is result.network.model
    assert result.agreement is result.network.agreement
    assert result.orders is result.network.plan.orders
    assert result.latency is None
    assert result.seed == 0
    assert result.effects is not None
    assert result.effects.keys() == result.widths.keys()


def test_heads_that_went_with_their_group_are_not_left() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=8, num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.randint(48, (30, 12))
    result = compress(model, tokens, width=0.5, method=Method(allocation="constant", refit=False))
    rows = {row.name: row for row in result.plan}
    heads = next(row for name, row in rows.items() if name.endswith(":heads-per-group"))
    weight = result.model.model.layers[0].self_attn.q_proj.weight
    assert heads.after == len(heads.kept) == len(weight) // 4 < heads.before

"""Low rank as a second kind of cut, from end to end."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.digits import Trained
from tests.lowrank.planted import RANK, images, planted_cnn, planted_mlp, rows
from tests.zoo.checks import counted_flops, parameter_count
from torch import nn

import interpress
from interpress import Analysis, ArgumentError, Method, Result
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.graph.example import Example
from interpress.pipeline import low_rank as pipeline

pytestmark = pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")


@pytest.fixture(scope="module")
def planted() -> Result:
    """Half of the FLOPs, which the planted rank leaves without a loss."""
    return interpress.compress(planted_mlp(), rows(), flops=0.5, lowrank=True, progress=False)


@pytest.fixture(scope="module")
def cnn_analysis() -> Analysis:
    return interpress.analyze(planted_cnn(), images(400), progress=False)


@pytest.fixture(scope="module")
def cnn(cnn_analysis: Analysis) -> Result:
    return cnn_analysis.compress(flops=0.3, lowrank=True, progress=False)


def test_a_planted_rank_is_found_and_nothing_is_lost(planted: Result) -> None:
    assert planted.ranks == {"2": RANK}
    assert planted.flops == 0.5
    assert all(row.after == row.before for row in planted.plan)
    x = rows(50, seed=1)
    torch.testing.assert_close(planted.model(x), planted.original(x), atol=1e-9, rtol=1e-9)
    assert [type(part) for part in planted.model[2]] == [nn.Linear, nn.Linear]
    assert planted.model[2][0].weight.shape == (RANK, 48)


def test_channels_and_ranks_share_a_budget(cnn_analysis: Analysis, cnn: Result) -> None:
    alone = cnn_analysis.compress(flops=0.3, progress=False)
    assert alone.ranks == {}
    assert "3" in cnn.ranks
    assert cnn.flops <= 0.3
    assert any(row.after < row.before for row in cnn.plan)
    test = images(300, seed=7)
    losses = [
        held_out_loss(interpress.agreement(cnn.original, result.model, test))
        for result in (alone, cnn)
    ]
    assert losses[1] < 0.8 * losses[0]
    assert cnn.network.refit_kept


def test_costs_are_those_of_the_network(planted: Result, cnn: Result) -> None:
    for result in (planted, cnn):
        (few,) = result.study.few_examples(2)
        one = Example((few.args[0][:1],))
        assert result.before.flops == counted_flops(result.original, one)
        assert result.after.flops == counted_flops(result.model, one)
        assert result.after.parameters == parameter_count(result.model)


def test_parameters_can_be_the_budget(cnn_analysis: Analysis) -> None:
    result = cnn_analysis.compress(params=0.4, lowrank=True, progress=False)
    assert result.ranks
    assert result.params <= 0.4
    assert parameter_count(result.model) <= 0.4 * parameter_count(result.original)


def test_it_is_never_worse_than_channels_alone_on_held_out_data(
    analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is built, the network of channels alone is returned if it is better."""
    alone = analysis.compress(flops=0.5, progress=False)
    for ruins in (False, True):
        built = pipeline.build_low_rank

        def build(*args: Any, built: Any = built, ruins: bool = ruins, **options: Any) -> Any:
            network = built(*args, **options)
            if ruins:
                with torch.no_grad():
                    for parameter in network.model.parameters():
                        parameter.mul_(0.5)
            return network

        monkeypatch.setattr(pipeline, "build_low_rank", build)
        result = analysis.compress(flops=0.5, lowrank=True, progress=False)
        assert result.agreement is not None
        assert alone.agreement is not None
        assert held_out_loss(result.agreement) <= held_out_loss(alone.agreement)
        low_rank = result.network.low_rank
        assert low_rank is not None
        assert bool(low_rank.pairs) == (
            low_rank.losses["low rank"] < low_rank.losses["channels alone"]
        )
    assert not result.ranks
    assert "no gain on held-out examples" in result.summary().replace("\n", " ")
    a, b = result.model.state_dict(), alone.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in b)


def test_the_summary_says_what_was_done_and_what_it_costs(cnn: Result) -> None:
    text = cnn.summary()
    assert max(map(len, text.splitlines())) <= 80
    plain = re.sub(r"\s+", " ", text)
    assert f"Low rank: {len(cnn.ranks)} layer" in plain
    assert "with channels alone" in plain
    assert "measured run time, relative" in plain
    assert cnn.latency is None  # it was not the budget
    assert cnn.measured_latency is not None
    for name, rank in cnn.ranks.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"│ {name} ")][-1:]
        assert f" {rank} " in line


def test_both_steps_are_proved(planted: Result, cnn: Result) -> None:
    for result in (planted, cnn):
        low_rank = result.network.low_rank
        assert low_rank is not None
        assert low_rank.proof
        assert low_rank.proof.tolerance == 1e-9
        assert result.network.proof


def test_a_network_that_does_something_else_is_refused(
    cnn_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interpress.network import build_low_rank as module

    made = module.factored_copy

    def tampered(*args: Any) -> nn.Module:
        network = made(*args)
        with torch.no_grad():
            next(network.parameters()).mul_(1.001)
        return network

    monkeypatch.setattr(module, "factored_copy", tampered)
    with pytest.raises(interpress.SurgeryError, match="two thin layers"):
        cnn_analysis.compress(flops=0.5, lowrank=True, progress=False)


def test_the_same_seed_gives_the_same_bits(cnn: Result) -> None:
    again = interpress.compress(planted_cnn(), images(400), flops=0.3, lowrank=True, progress=False)
    assert again.ranks == cnn.ranks
    a, b = cnn.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_it_can_be_distilled_exported_and_compressed_again(cnn: Result) -> None:
    distilled = cnn.distill(steps=20, progress=False)
    assert distilled.ranks == cnn.ranks
    assert distilled.after == cnn.after
    x = images(3, seed=2)
    program = torch.export.export(distilled.model, (x,))
    torch.testing.assert_close(program.module()(x), distilled.model(x))
    again = interpress.compress(distilled.model, images(), width=0.9, progress=False)
    assert again.model(x).shape == (3, 5)


def test_onnx(cnn: Result) -> None:
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    stream, x = io.BytesIO(), images(3, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(cnn.model, (x,), stream, dynamo=False)
    session = ort.InferenceSession(stream.getvalue())
    (outputs,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(
        torch.from_numpy(outputs), cnn.model(x).detach(), atol=1e-4, rtol=1e-4
    )


def test_a_method_without_refit_has_the_first_factors(cnn_analysis: Analysis) -> None:
    plain = cnn_analysis.compress(
        flops=0.5, lowrank=True, method=Method(refit=False), progress=False
    )
    assert plain.ranks
    assert plain.network.refit is None
    iterative = cnn_analysis.compress(
        flops=0.5, lowrank=True, method="iterative-id", progress=False
    )
    assert iterative.flops <= 0.5


def test_excluded_layers_stay_whole(digits: Trained) -> None:
    """With them, channels alone cannot reach the budget: low rank can."""
    options: dict[str, Any] = {"flops": 0.8, "exclude": ["inner.*"], "progress": False}
    with pytest.raises(
        ArgumentError, match=r"at the smallest widths .* 0\.995 of the flops remain"
    ):
        interpress.compress(digits.model, digits.calibration, **options)
    result = interpress.compress(digits.model, digits.calibration, lowrank=True, **options)
    assert set(result.ranks) == {"back.0"}
    assert result.flops <= 0.8
    assert "channels alone cannot meet this budget" in str(result.network.low_rank)
    assert "inner.0" not in result.ranks
    assert type(result.model.inner[0]) is nn.Conv2d


def test_a_network_without_such_layers_is_cut_as_usual(
    cnn_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "factorable_layers", lambda program, exclude: [])
    result = cnn_analysis.compress(flops=0.5, lowrank=True, progress=False)
    assert "no layer of this network can become two" in str(result.network.low_rank)
    assert result.flops <= 0.5


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "same widths": ({"flops": 0.5, "same_widths": True}, "lowrank=True and same_widths=True"),
    "another budget": ({"agreement": 0.9}, r"flops= or params=.*got agreement=0\.9"),
    "the literal loop": (
        {"flops": 0.5, "method": Method.named("iterative-id", recompute=True)}, "recompute=True"
    ),
    "not a bool": ({"flops": 0.5, "lowrank": 2}, "lowrank=2; give True or False"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused(name: str) -> None:
    options, message = REFUSED[name]
    options = {"lowrank": True, "progress": False, **options}
    with pytest.raises(ArgumentError, match=message):
        interpress.compress(planted_mlp(), rows(), **options)


def test_a_network_that_goes_block_by_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"block by block.*checkpoint="):
        interpress.compress(
            planted_mlp(), rows(), flops=0.5, lowrank=True, checkpoint=tmp_path / "state",
            progress=False,
        )  # fmt: skip


def test_an_analysis_without_data_cannot_do_it(cnn_analysis: Analysis, tmp_path: Path) -> None:
    path = tmp_path / "analysis.safetensors"
    cnn_analysis.save(path)
    later = interpress.Analysis.load(path, planted_cnn())
    method = Method(refit=False, allocation="marginal")
    with pytest.raises(ArgumentError, match="without calibration data"):
        later.compress(flops=0.5, method=method, lowrank=True)


def test_the_report_names_the_layers(cnn: Result, tmp_path: Path) -> None:
    cnn.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "product identity" in page.lower()
    assert "became two" in page
    assert "became two" in cnn._repr_html_()
    assert page.count("rank") > 1

"""What is seldom decided counts for more in the refit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.calibration.sample_weights import TopClasses, draw_examples, joined, top_classes_of
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.refit import regression
from interpress.refit.refit import examples_needed
from interpress.refit.regression import Regression


def surely(classes: list[int], of: int = 4) -> Tensor:
    """Probabilities of examples whose class is all but certain."""
    return nn.functional.one_hot(torch.tensor(classes), of) * 0.96 + 0.01


def test_a_rare_class_counts_for_more_and_chance_for_nothing() -> None:
    weights = TopClasses.of(surely([0] * 40 + [1] * 40 + [2] * 8 + [3] * 30)).weights()
    assert set(weights[:80].tolist()) == {1.0}  # the median
    assert set(weights[88:].tolist()) == {1.0}  # 30 instead of 40 is chance
    torch.testing.assert_close(weights[80:88], torch.full((8,), 4.5), atol=0.6, rtol=0)


def test_no_example_counts_more_than_eight_times_and_stray_chances_do_not_count() -> None:
    certain = surely([0] * 500 + [1] * 499 + [2])
    weights = TopClasses.of(certain).weights()
    assert float(weights[-1]) == 8.0
    certain = torch.full((100, 3), 1e-4)
    certain[:50, 0] = certain[50:, 1] = 0.9998
    certain[7, 2] = 5e-3  # nobody ever decides for the third class
    assert set(TopClasses.of(certain).weights().tolist()) == {1.0}


def test_the_share_of_a_class_is_what_counts_where_examples_are_in_doubt() -> None:
    chances = surely([0] * 45 + [1] * 45 + [2] * 10, of=3)
    chances[0] = torch.tensor([0.5, 0.0, 0.5])
    weights = TopClasses.of(chances).weights()
    assert 1.5 < float(weights[0]) < float(weights[-1])


def test_only_one_decision_per_example_can_be_balanced() -> None:
    scores = torch.randn(6, 5)
    whole = OutputMeaning(0, "classification").probabilities(scores)
    assert whole is not None
    torch.testing.assert_close(whole, scores.double().softmax(1))
    binary = OutputMeaning(0, "binary").probabilities(scores[:, :1])
    assert binary is not None
    torch.testing.assert_close(binary[:, 1], scores[:, 0].double().sigmoid())
    assert OutputMeaning(0, "classification").probabilities(torch.randn(6, 7, 5)) is None  # tokens
    assert OutputMeaning(0, "segmentation").probabilities(torch.randn(6, 5, 4, 4)) is None
    assert OutputMeaning(0, "regression").probabilities(scores) is None
    assert (
        top_classes_of(OutputMeaning(0, "classification"), [scores], 3) is None
    )  # not a row per example
    known = top_classes_of(OutputMeaning(0, "classification"), [scores], 6)
    assert known is not None
    assert joined([known, None]) is None
    assert (
        top_classes_of(OutputMeaning(0, "classification"), [scores.sum()], 6) is None
    )  # a single number
    assert top_classes_of(OutputMeaning(0, "classification"), [scores * torch.inf], 6) is None
    both = joined([known, known])
    assert both is not None
    assert both.classes.shape == (12, 5)


@pytest.mark.parametrize("count", [1, 30, 70, 99, 100, 300])
def test_what_weighs_more_is_drawn_more_surely_and_the_sum_is_right(count: int) -> None:
    weights = torch.ones(100)
    weights[::10] = 5.0
    chosen, counts = draw_examples(weights, count, seed=3)
    assert len(chosen) == min(count, 100)
    assert torch.equal(chosen, chosen.unique())
    if count < 100:
        totals = []
        for seed in range(40):
            chosen, counts = draw_examples(weights, count, seed)
            totals.append(len(chosen) if counts is None else float(counts.sum()))
        if count >= 30:  # the ten heavy ones are there, and what they count is their own
            assert set(range(0, 100, 10)) <= set(chosen.tolist())
            assert sum(totals) / 40 == pytest.approx(140, rel=0.02)
    else:
        assert counts is not None
        assert torch.equal(counts, weights)


def test_weighted_rows_are_rows_that_come_that_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "RIDGES", (1e-3,))
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 1, 6, generator=generator).double() + 1
    wish = X[:, 0, :3].relu() + X[:, 0, 3:].square()  # no linear layer gives that
    often = torch.randint(1, 5, (400,), generator=generator)

    def solved(rows: Tensor, weights: Tensor | None) -> Tensor:
        task = Regression(
            [X[rows]], wish[rows], torch.zeros(1, 3), scale=None, relu=False, shifts=True,
            weights=weights,
        )  # fmt: skip
        found = task.solve(torch.zeros(3, 6).double(), torch.zeros(3).double())
        assert found.change is not None
        return torch.cat([found.change.flatten(), found.shift])

    each = torch.arange(400)
    weighted = solved(each, often)
    torch.testing.assert_close(weighted, solved(each.repeat_interleave(often), None))
    assert float((weighted - solved(each, None)).abs().max()) > 1e-2


class Blobs(nn.Module):
    """Four classes in the plane of two of its inputs, through a wide hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 48)
        self.deeper = nn.Linear(48, 48)
        self.out = nn.Linear(48, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.deeper(self.hidden(x).relu()).relu())


def blobs(classes: Tensor, generator: torch.Generator) -> Tensor:
    centres = 2.0 * torch.eye(8)[:4]
    return centres[classes] + 0.7 * torch.randn(len(classes), 8, generator=generator)


@pytest.fixture(scope="module")
def trained() -> Blobs:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Blobs()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        labels = torch.randint(4, (256,), generator=generator)
        loss = nn.functional.cross_entropy(model(blobs(labels, generator)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def uneven(generator: torch.Generator) -> Tensor:
    """Calibration data that show the last class one time in fifty."""
    rare = torch.rand(800, generator=generator) < 0.02
    labels = torch.where(rare, 3, torch.randint(3, (800,), generator=generator))
    return blobs(labels, generator)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rare_class_keeps_more_of_its_accuracy(trained: Blobs, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    data = uneven(generator)
    rare = blobs(torch.full((4000,), 3), generator)
    before = (trained(rare).argmax(1) == 3).float().mean()
    lost = {}
    for balance in (True, False):
        found = interpress.compress(trained, data, flops=0.05, balance=balance, progress=False)
        assert found.built.refit_kept
        lost[balance] = float(before - (found.model(rare).argmax(1) == 3).float().mean())
    assert lost[True] < 0.6 * lost[False]


def test_balanced_data_make_no_difference(trained: Blobs) -> None:
    data = blobs(torch.arange(600) % 4, torch.Generator().manual_seed(2))
    analysis = interpress.analyze(trained, data, progress=False)
    one, other = (
        analysis.compress(flops=0.4, balance=balance, progress=False).model
        for balance in (True, False)
    )
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])


def test_a_saved_analysis_knows_what_was_decided(trained: Blobs, tmp_path: Path) -> None:
    data = uneven(torch.Generator().manual_seed(1))
    analysis = interpress.analyze(trained, data, progress=False)
    analysis.save(tmp_path / "a.safetensors")
    again = interpress.Analysis.load(tmp_path / "a.safetensors", trained, data)
    one, other = (a.compress(flops=0.3, progress=False).model for a in (analysis, again))
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])
    others = interpress.Analysis.load(tmp_path / "a.safetensors", trained, data.flip(0))
    kept = others._knowledge.decisions
    assert kept is not None
    assert kept.classes.shape[0] == others._knowledge.fit_examples
    with torch.no_grad():
        fit = torch.cat([e.args[0] for e in others._knowledge.data().batches("fit")])
        assert torch.equal(kept.classes[:, 0].long(), trained(fit).argmax(1))


def test_the_refit_takes_as_many_examples_as_its_layers_can_use(trained: Blobs) -> None:
    spaces = interpress.find_spaces(trained, torch.randn(4, 8))
    assert examples_needed(spaces.program) == 8 * 48
    convolution = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3))
    spaces = interpress.find_spaces(convolution, torch.randn(4, 3, 12, 12))
    assert examples_needed(spaces.program) == 8 * 16 * 9 // 16

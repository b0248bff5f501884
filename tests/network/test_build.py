"""Building the network of a plan: correction, refit, and which of them is kept."""

from __future__ import annotations

import pytest
import torch
from tests.blobs import Blobs, blobs, uneven
from tests.digits import Trained
from torch import Tensor, nn

import interpress
from interpress import Analysis, FewExamplesWarning, Method, agreement, analyze, compress
from interpress.data.batches import batch_size
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Tally
from interpress.network.refit_examples import refit_examples
from interpress.selection.registry import SELECTIONS

BASELINES = sorted(set(SELECTIONS) - {"pivoting", "weights", "patches"})


def test_a_refit_lowers_the_divergence_or_is_not_kept(digits: Trained, analysis: Analysis) -> None:
    plain = analysis.compress(flops=0.3, method=Method(refit=False))
    result = analysis.compress(flops=0.3)
    assert plain.network.refit is None
    assert plain.agreement is not None
    assert result.agreement is not None
    assert plain.agreement.divergence is not None
    assert result.network.refit_kept
    assert result.agreement.divergence < 0.8 * plain.agreement.divergence
    assert result.network.refit is not None
    errors = result.network.refit.errors
    assert {"inner.0.weight", "hidden.weight", "out.weight"} <= set(errors)
    assert all(after <= before for before, after in errors.values())
    whole = analysis.compress(width=1.0)
    assert not whole.network.refit_kept
    assert torch.equal(whole.model(digits.test), digits.model(digits.test))


@pytest.mark.parametrize("selection", BASELINES)
@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")  # without the correction
def test_the_correction_helps_every_baseline(
    selection: str, analysis: Analysis, digits: Trained
) -> None:
    plain, corrected = (
        analysis.compress(
            flops=0.5,
            method=Method(selection=selection, allocation="constant", refit=False, correct=correct),
        )
        for correct in (False, True)
    )
    assert plain.widths == corrected.widths
    assert plain.plan[0].kept == corrected.plan[0].kept
    without, with_correction = (
        agreement(digits.model, result.model, digits.test).divergence
        for result in (plain, corrected)
    )
    assert without is not None
    assert with_correction is not None
    assert with_correction < without


@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")
def test_without_correction_consumers_only_lose_the_dropped_channels(
    analysis: Analysis, digits: Trained
) -> None:
    method = Method(selection="l1", allocation="constant", refit=False, correct=False)
    result = analysis.compress(flops=0.6, method=method)
    expected = interpress.shrink(result.spaces, result.network.plan.kept)
    with torch.no_grad():
        assert torch.equal(result.model(digits.test), expected(digits.test))
    assert result.network.cut.T == {}


def test_every_network_is_proved(analysis: Analysis) -> None:
    for method in (Method(refit=False), Method(refit=False, correct=False)):
        network = analysis.compress(flops=0.5, method=method).network
        assert network.proof.difference < 1e-9
        assert network.plan.kept.keys() == network.cut.kept.keys()


class Wide(nn.Module):
    """A layer that is read at every position, and a wide one that is read once per image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 24, 3), nn.Conv2d(24, 64, 3)
        self.last = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu()).relu()
        return self.last(x.mean((2, 3)))


@pytest.mark.parametrize("examples", [2, 40])
def test_fewer_rows_than_channels_give_a_network(examples: int) -> None:
    """The last layer reads one row per image, from before the average there are many."""
    torch.manual_seed(0)
    model, images = Wide(), torch.randn(examples, 3, 8, 8)
    result = compress(model, images, flops=0.6, method=Method(allocation="iterative"))
    assert result.flops <= 0.6
    assert result.model.second.out_channels < 64
    assert result.network.warnings == ()


def test_one_row_gives_a_network_with_a_warning() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 5))
    with pytest.warns(FewExamplesWarning, match=r"interpolate any space \(0: its 1 rows cannot be"):
        result = compress(model, torch.randn(1, 6), flops=0.5)
    assert result.flops <= 0.5
    assert len(result.network.warnings) == 1


def test_a_refit_is_not_undone_by_one_example_of_many() -> None:
    """Of two hundred examples nearly all come closer, and one goes astray."""
    meaning = OutputMeaning(0, "classification")
    original = torch.tensor([[2.0, 0.0]]).repeat(200, 1)
    plain, better = original + torch.tensor([0.0, 0.5]), original + torch.tensor([0.0, 0.1])
    better[7] = torch.tensor([0.0, 9.0])

    def compared(other: Tensor) -> interpress.Agreement:
        tally = Tally(meaning)
        tally.add(original, other)
        return tally.result()

    before, after = compared(plain), compared(better)
    assert before.divergence is not None
    assert after.divergence is not None
    assert after.divergence > before.divergence
    assert held_out_loss(after) < held_out_loss(before)
    better[:40] = torch.tensor([0.0, 9.0])
    assert held_out_loss(compared(better)) > held_out_loss(before)


@pytest.mark.parametrize(
    ("kind", "original", "loss"),
    [
        ("regression", torch.tensor([[1.0], [3.0], [5.0], [7.0]]), "output_error"),
        ("decisions", torch.tensor([1, 3, 5, 7]), None),
    ],
)
def test_the_loss_without_scores(kind: str, original: Tensor, loss: str | None) -> None:
    tally = Tally(OutputMeaning(0, kind))
    tally.add(original, original + torch.tensor([0, 0, 0, 1]).reshape(original.shape))
    result = tally.result()
    expected = 0.25 if loss is None else getattr(result, loss)
    assert held_out_loss(result) == pytest.approx(expected)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rare_class_keeps_more_of_its_accuracy(blob_classifier: Blobs, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    data = uneven(generator)
    rare = blobs(torch.full((4000,), 3), generator)
    before = (blob_classifier(rare).argmax(1) == 3).float().mean()
    lost = {}
    for balance in (True, False):
        method = Method(balance=balance)
        result = compress(blob_classifier, data, flops=0.05, method=method, progress=False)
        assert result.network.refit_kept
        lost[balance] = float(before - (result.model(rare).argmax(1) == 3).float().mean())
    assert lost[True] < 0.6 * lost[False]


def test_balancing_makes_no_difference_on_balanced_data(blob_classifier: Blobs) -> None:
    data = blobs(torch.arange(600) % 4, torch.Generator().manual_seed(2))
    analysis = interpress.analyze(blob_classifier, data, progress=False)
    one, other = (
        analysis.compress(flops=0.4, method=Method(balance=balance), progress=False).model
        for balance in (True, False)
    )
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])


def test_a_refit_with_little_memory_uses_few_examples(digits: Trained) -> None:
    study = analyze(digits.model, digits.calibration).study
    much, little = (refit_examples(study, Method(), memory) for memory in (1.0, 1e-9))
    assert sum(map(batch_size, little.examples)) == 16
    assert sum(map(batch_size, much.examples)) > 16

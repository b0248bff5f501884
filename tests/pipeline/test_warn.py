"""Warnings about networks of no use and about spaces that the examples say too little about."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from tests.blobs import Blobs, blobs
from tests.zoo.members import build
from torch import nn

import interpress
from interpress import Agreement, Analysis, FewExamplesWarning, Method, Result, RuinedWarning
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Tally
from interpress.pipeline.warn import ruin

PRUNED = Method(selection="l1", correct=False, refit=False)
"""Leaves channels out without any correction, which ruins networks soon."""


@pytest.fixture(scope="module")
def classifier(blob_classifier: Blobs) -> Analysis:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (400,), generator=generator)
    return interpress.analyze(blob_classifier, blobs(labels, generator), progress=False)


@pytest.fixture(scope="module")
def regression() -> Analysis:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    for name, parameter in model.named_parameters():
        parameter.data.mul_(4 if name.endswith("weight") else 1)
    data = torch.randn(400, 8, generator=torch.Generator().manual_seed(1))
    return interpress.analyze(model, data, kind="regression", progress=False)


def warned(analysis: Analysis, flops: float, method: Method) -> tuple[Result, list[str]]:
    """Return a result and the texts of its warnings about ruined networks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = analysis.compress(flops=flops, method=method, progress=False)
    assert all(warning.filename == __file__ for warning in caught)  # they point at the caller
    return result, [str(w.message) for w in caught if w.category is RuinedWarning]


def suggested(message: str) -> float:
    match = re.search(r"The nearest budget that holds is about flops=([\d.]+)", message)
    assert match is not None, message
    return float(match[1])


@pytest.mark.parametrize("flops", [0.01, 0.05])
def test_a_ruined_classifier_is_announced_with_a_budget_that_holds(
    classifier: Analysis, flops: float
) -> None:
    result, (message,) = warned(classifier, flops, PRUNED)
    assert result.agreement is not None
    assert f"makes {float(result.agreement):.0%} of the original's decisions" in message
    assert "always deciding alike gives" in message
    for row in result.plan:
        assert f"{row.name} ({row.after} of {row.before} left)" in message
    assert message in result.notes
    assert "of no use" in result.summary()
    assert warned(classifier, suggested(message), PRUNED)[1] == []


@pytest.mark.parametrize("flops", [0.02, 0.1])
def test_a_regression_worse_than_its_mean_is_announced_with_a_budget_that_holds(
    regression: Analysis, flops: float
) -> None:
    result, (message,) = warned(regression, flops, PRUNED)
    assert result.agreement is not None
    assert result.agreement.output_error is not None
    assert result.agreement.output_error > 1
    assert f"output error is {result.agreement.output_error:.3g}, and predicting the" in message
    assert "0 (" in message
    assert "2 (" in message
    assert warned(regression, suggested(message), PRUNED)[1] == []


def test_good_networks_are_not_announced(classifier: Analysis, regression: Analysis) -> None:
    for analysis in (classifier, regression):
        result, messages = warned(analysis, 0.3, Method())
        assert messages == []
        assert "of no use" not in result.summary()


def decided(first: list[int], second: list[int]) -> Agreement:
    tally = Tally(OutputMeaning(0, "classification"))
    tally.add(torch.eye(3)[first], torch.eye(3)[second])
    return tally.result()


@pytest.mark.parametrize(
    ("original", "smaller", "message"),
    [
        ([0, 0, 0, 1], [0, 0, 1, 1], None),  # as good as always deciding 0
        ([0, 0, 0, 1], [0, 0, 1, 0], r"makes 50% .*always deciding alike gives 75%"),
        ([0, 1, 2, 0, 1], [0, 1, 1, 1, 0], r"makes 40% .*fewer than half; .*gives 40%"),
        ([0, 0, 0], [0, 0, 0], None),
        ([0, 0, 0], [0, 0, 1], r"makes 67% .*gives 100%"),
    ],
)
def test_a_network_is_ruined_if_a_constant_or_half_of_the_decisions_beats_it(
    original: list[int], smaller: list[int], message: str | None
) -> None:
    problem = ruin(decided(original, smaller))
    if message is None:
        assert problem is None
    else:
        assert problem is not None
        assert re.search(message, problem)


def test_spaces_left_whole_for_want_of_examples_are_listed() -> None:
    model, example = build("lenet")
    result = interpress.compress(model, example[:1], flops=0.8, progress=False)
    whole = [name for name in result.orders.untrusted if name not in result.network.plan.kept]
    assert whole
    (note,) = [note for note in result.notes if "Left whole" in note]
    assert all(name in note for name in whole)
    assert "Left whole" in result.summary()


def test_a_budget_that_needs_untrusted_spaces_warns_with_the_reason() -> None:
    model, example = build("mlp")
    with pytest.warns(FewExamplesWarning, match=r"say too little.*rows.*more examples"):
        result = interpress.compress(model, example[:1], flops=0.5, progress=False)
    assert result.flops <= 0.5
    assert "say too little" in " ".join(result.summary().split())


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")
@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
@pytest.mark.parametrize("examples", [1, 4, 5])
def test_the_summary_says_whether_agreement_is_on_fitted_examples(examples: int) -> None:
    torch.manual_seed(0)
    result = interpress.compress(
        build("lenet")[0], torch.randn(examples, 1, 16, 16).double(), flops=0.8, progress=False
    )
    summary = " ".join(result.summary().split())
    assert ("on the examples that were fitted" in summary) == (examples < 5)
    assert ("on held-out examples" in summary) == (examples == 5)


def test_warnings_point_to_the_line_of_the_caller() -> None:
    model, example = build("mlp")
    data = example[:1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        interpress.compress(model, data, flops=0.5, progress=False)
        interpress.analyze(model, data, progress=False).compress(flops=0.5, progress=False)
    files = [str(w.filename) for w in caught if w.category is interpress.FewExamplesWarning]
    assert files == [__file__, __file__]

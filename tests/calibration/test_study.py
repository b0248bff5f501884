"""What is known about a network after calibration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import interpress
from interpress import ArgumentError
from interpress.calibration import study as module
from interpress.calibration.study import Study
from interpress.data.batches import batch_size

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def study() -> Study:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).double().eval()
    return interpress.analyze(model, X).study


def test_sample_weights_need_predicted_classes(study: Study) -> None:
    assert study.fit_examples == 48
    assert study.top_classes is not None
    assert torch.equal(study.sample_weights(), study.top_classes.weights())
    assert torch.equal(replace(study, top_classes=None).sample_weights(), torch.ones(48))


def test_what_needs_data_says_so(study: Study) -> None:
    assert study.require_data() is study.data
    loaded = replace(study, data=None)
    for needs_data in (loaded.require_data, loaded.evaluator, lambda: loaded.few_examples(4)):
        with pytest.raises(ArgumentError, match=r"loaded without calibration data.*pass data= to"):
            needs_data()


def test_few_examples_come_from_those_to_fit(study: Study) -> None:
    fit = torch.cat([example.args[0] for example in study.require_data().batches("fit")])
    for wanted in (16, 1000):
        (examples,) = study.few_examples(wanted)
        assert torch.equal(examples.args[0], fit[:wanted])


def test_large_activations_leave_at_least_two_examples(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MEMORY_FOR_FEW", 1)
    (examples,) = study.few_examples(16)
    assert batch_size(examples) == 2


def test_the_dtype_is_that_of_the_weights(study: Study) -> None:
    assert study.dtype == torch.float64
    assert study.original.training is False

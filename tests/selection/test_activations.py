"""Activations of a few examples, measured when a selection first asks for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.digits import Trained

from interpress import Analysis, ArgumentError
from interpress.selection.activations import Activations


def tap_of(analysis: Analysis, weight: str) -> str:
    return next(name for name in analysis.spaces.taps if name.startswith(weight))


def test_the_sample_is_what_the_consumer_reads(analysis: Analysis, digits: Trained) -> None:
    fit = torch.cat([e.args[0] for e in analysis.study.require_data().batches("fit", limit=128)])
    with torch.no_grad():
        expected = digits.model.inner(digits.model.stem(fit))
    with Activations(analysis.study) as activations:
        sample = activations.at(tap_of(analysis, "back.0"))
    torch.testing.assert_close(sample.operand, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sample.maps(), expected, atol=1e-5, rtol=1e-5)
    columns = expected.movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(sample.columns(), columns, atol=1e-5, rtol=1e-5)
    assert sample.dense is not None
    assert sample.weight is not None
    assert torch.equal(sample.weight, digits.model.back[0].weight)
    assert torch.equal(sample.units(analysis.spaces["inner.0"]), torch.arange(48))


def test_a_linear_layer_reads_maps_of_one_number(analysis: Analysis) -> None:
    sample = Activations(analysis.study).at(tap_of(analysis, "out"))
    assert sample.maps().shape == (128, 64, 1, 1)
    assert torch.equal(sample.maps()[:, :, 0, 0], sample.operand)


def test_activations_are_forgotten_afterwards_and_measured_again_when_needed(
    analysis: Analysis,
) -> None:
    tap = tap_of(analysis, "out")
    with Activations(analysis.study) as activations:
        first = activations.at(tap)
        assert activations._operands
    assert not activations._operands
    assert torch.equal(activations.at(tap).operand, first.operand)


def test_without_data_the_remedy_is_named(analysis: Analysis) -> None:
    study = replace(analysis.study, data=None)
    with pytest.raises(ArgumentError, match=r"no calibration data; choose another.*pass data= to"):
        Activations(study).at(tap_of(analysis, "out"))

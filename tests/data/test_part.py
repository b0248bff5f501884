"""One module of a model that cannot be captured as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.zoo.detection import Detector
from torch import Tensor, nn

import interpress
from interpress import ArgumentError, CaptureError, DataError, Method, SurgeryError
from interpress.data.calibration_set import CalibrationSet
from interpress.data.part import Part

QUICK: dict[str, Any] = {"method": Method(allocation="marginal", refit=False), "progress": False}


def detector() -> nn.Module:
    torch.manual_seed(0)
    return Detector().eval()


def batches() -> list[Tensor]:
    return list(torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(1)).split(5))


def test_a_model_that_cannot_be_captured_names_its_largest_part(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(
        CaptureError, match=r"compress only the largest part without it: part='backbone'"
    ):
        interpress.compress(detector(), batches(), flops=0.6, **QUICK)
    assert capfd.readouterr().err == ""  # torch.export prints the graph that it cannot finish


def test_the_part_is_smaller_and_sits_in_a_copy_of_the_whole(tmp_path: Path) -> None:
    model = detector()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = interpress.compress(model, batches(), part="backbone", flops=0.6, **QUICK)
    assert result.flops <= 0.6
    assert type(result.model) is Detector
    small = sum(p.numel() for p in result.model.get_submodule("backbone").parameters())
    assert small < sum(p.numel() for p in model.get_submodule("backbone").parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not {p.data_ptr() for p in result.model.parameters()} & {
        p.data_ptr() for p in model.parameters()
    }
    x = batches()[0]
    assert all(set(found) == {"boxes", "scores"} for found in result.model(list(x)))
    assert "in the part backbone" in " ".join(result.summary().split())
    assert "those of the part 'backbone'" in " ".join(result.notes)
    result.save(tmp_path / "smaller", report=True)
    loaded = interpress.load(tmp_path / "smaller", detector())
    for one, other in zip(loaded(list(x)), result.model(list(x)), strict=True):
        assert torch.equal(one["boxes"], other["boxes"])


def test_it_is_what_the_backbone_alone_gives_on_the_same_inputs() -> None:
    model, data = detector(), batches()
    result = interpress.compress(model, data, part="backbone", flops=0.6, **QUICK)
    normalised = [(x - 0.5) / 0.25 for x in data]
    alone = interpress.compress(model.backbone, normalised, flops=0.6, kind="regression", **QUICK)
    inside = result.model.get_submodule("backbone").state_dict()
    assert all(torch.equal(inside[name], t) for name, t in alone.model.state_dict().items())


def test_lists_of_images_with_targets_are_inputs_of_the_whole() -> None:
    data = [(tuple(x), tuple({} for _ in x)) for x in batches()]
    result = interpress.compress(detector(), data, part="backbone", flops=0.6, **QUICK)
    images = [list(x) for x in batches()]  # of the same size; a list of images is one input
    same = interpress.compress(detector(), images, part="backbone", flops=0.6, **QUICK)
    assert result.widths == same.widths


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("backbon", "part='backbon' is no module of Detector; it has backbone"),
        ("unused", "part='unused' is not called when Detector runs"),
        ("head.tower", "part='head.tower' is called 2 times"),
        ("", "part='' is no module of Detector"),
    ],
)
def test_names_that_cannot_be_a_part(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message.replace("'", ".")):
        interpress.compress(detector(), batches(), part=name, flops=0.6, **QUICK)


class Commented(Detector):
    """Says in a comment what it takes, as code for TorchScript does."""

    def forward(self, images, targets=None):  # type: ignore[no-untyped-def]
        # type: (list[Tensor], Optional[list[dict[str, Tensor]]]) -> list[dict[str, Tensor]]
        return super().forward(list(images))


class Silent(Detector):
    """Does not say what it takes; a single image would run too."""

    def forward(self, images):  # type: ignore[no-untyped-def]
        return super().forward(list(images))


@pytest.mark.parametrize("kind", [Commented, Silent])
def test_a_list_of_images_is_one_input_even_if_the_forward_has_no_annotation(
    kind: type[Detector],
) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    images = [list(x) for x in batches()]
    expected = interpress.compress(detector(), batches(), part="backbone", flops=0.6, **QUICK)
    result = interpress.compress(model, images, part="backbone", flops=0.6, **QUICK)
    weights = result.model.state_dict()
    assert all(torch.equal(weights[n], t) for n, t in expected.model.state_dict().items())
    assert len(result.model(images[0])) == 5


def test_two_inputs_that_look_like_images_are_not_a_list() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x, y):  # type: ignore[no-untyped-def]
            return self.body(x + y)

    x = torch.randn(20, 3, 6)
    data = [(x[:10], x[:10] + 1), (x[10:], x[10:] + 1)]
    result = interpress.compress(TwoInputs(), data, part="body", flops=0.6, **QUICK)
    assert result.model(*data[0]).shape == (10, 3, 8)


def test_images_are_counted_and_not_their_channels() -> None:
    part = Part(detector(), "backbone")
    data = [list(x) for x in batches()]  # four batches of five images with three channels
    calibration = CalibrationSet(data, part.module, forward=part.forward)
    assert calibration.expected_fit_examples() == 16


def test_data_on_which_the_whole_does_not_run() -> None:
    data = [[torch.rand(3, 16, 16), torch.rand(3, 12, 16)]]  # the detector stacks its images
    with pytest.raises(DataError, match="Detector does not run on a batch of the data"):
        interpress.compress(detector(), data, part="backbone", flops=0.6, **QUICK)


def test_the_mode_of_the_whole_does_not_matter_and_is_kept() -> None:
    model = detector().train()  # a detector in training asks for targets
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    interpress.compress(model, batches(), part="backbone", flops=0.6, **QUICK)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_code_outside_that_reads_inside_is_noticed() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
            self.head = nn.Linear(24, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cat([self.body(x), self.body[0](x)], 1))

    with pytest.raises(SurgeryError, match="Reads does not run with a smaller body"):
        interpress.compress(Reads(), torch.randn(40, 6), part="body", flops=0.6, **QUICK)


def test_a_forward_of_the_user_calls_the_whole() -> None:
    data = [{"pixels": x} for x in batches()]
    result = interpress.compress(
        detector(), data, part="backbone", flops=0.6,
        forward=lambda model, batch: model(list(batch["pixels"])), **QUICK,
    )  # fmt: skip
    assert result.flops <= 0.6


def test_a_part_is_compared_like_a_network_of_its_own() -> None:
    model = detector()
    part = Part(model, "backbone")
    found = interpress.agreement(
        model.backbone, model.backbone, batches(), forward=part.forward, kind="regression"
    )
    assert found.output_error == 0

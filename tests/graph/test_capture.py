"""Capture gives a program that runs as the model does, and says what it cannot capture."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, CaptureError, find_spaces
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.model_state import output_tensors


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_program_runs_at_other_batch_sizes(batch: int) -> None:
    model = network().eval()
    program = capture(model, torch.randn(batch, 6))
    for rows in (1, 3, 17):
        x = torch.randn(rows, 6)
        assert torch.equal(Executor(program).run(x)[0], model(x))


def test_a_program_reads_the_current_weights() -> None:
    model = network().eval()
    program = capture(model, torch.randn(2, 6))
    with torch.no_grad():
        model[0].weight.mul_(2)
    x = torch.randn(4, 6)
    assert torch.equal(Executor(program).run(x)[0], model(x))


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(5, 6)

    def forward(self, x: Tensor, pair: tuple[Tensor, Tensor], *, scale: Tensor, flag: bool = True):
        y = self.a(x) + self.b(pair[0]) * scale
        return {"sum": y, "rest": [y.relu(), (pair[1] if flag else y,)]}


def test_nested_inputs_and_outputs() -> None:
    model = Several().eval()
    example = Example(
        (torch.randn(3, 4), (torch.randn(3, 5), torch.randn(3, 6))), {"scale": torch.rand(3, 1)}
    )
    program = capture(model, example)
    expected = output_tensors(model, example)
    outputs = Executor(program).run()
    assert len(outputs) == 3
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


class Answers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Answer:
        h = self.a(x)
        return Answer(self.b(h.relu()), h)


def test_dataclass_outputs() -> None:
    spaces = find_spaces(Answers(), torch.randn(3, 4))
    assert spaces["a"].frozen == "it is an output of the model"


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if x.sum() > 0 else x


def test_control_flow_on_values_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"could not capture Branches.*torch\.where"):
        capture(Branches(), torch.randn(2, 4))


def test_wrong_examples_are_refused() -> None:
    with pytest.raises(CaptureError, match=r"does not run on an input of shape \(2, 7\) float32"):
        capture(network(), torch.randn(2, 7))
    with pytest.raises(CaptureError, match=r"does not run on an input of shape nonsense \(2, 6\)"):
        capture(network(), {"nonsense": torch.randn(2, 6)})
    with pytest.raises(CaptureError, match=r"\(2, 3, 8, 8\) uint8 .*convert them with \.float\(\)"):
        capture(nn.Conv2d(3, 4, 3), torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match="holds no tensor"):
        capture(network(), ())
    with pytest.raises(ArgumentError, match="the example is a str; pass a tensor"):
        capture(network(), "image.png")
    with pytest.raises(ArgumentError, match=r"model is a function; pass a torch\.nn\.Module"):
        capture(test_wrong_examples_are_refused, torch.randn(2))  # type: ignore[arg-type]


def test_the_model_is_not_changed() -> None:
    model = network()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    calls = []
    handle = model[2].register_forward_hook(lambda *_: calls.append(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    spaces = find_spaces(model, torch.randn(4, 6))
    assert [module.training for module in model.modules()] == modes
    assert not model[0].weight.requires_grad
    assert list(model[2]._forward_hooks) == [handle.id]
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert spaces["0"].frozen is None
    assert torch.is_grad_enabled()


def test_modes_are_restored_after_an_error() -> None:
    model = Branches().train()
    with pytest.raises(CaptureError):
        capture(model, torch.randn(2, 4))
    assert model.training
    assert model.a.training

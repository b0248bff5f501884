from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, CaptureError, DataError, find_spaces
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.model_state import output_tensors, unwrap


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_graph_runs_at_other_batch_sizes(batch: int) -> None:
    model = network().eval()
    program = capture(model, torch.randn(batch, 6))
    for rows in (1, 3, 17):
        x = torch.randn(rows, 6)
        assert torch.equal(Executor(program).run(x)[0], model(x))


def test_graph_reads_the_live_weights() -> None:
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
    got = Executor(program).run()
    assert len(got) == 3
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_keyword_inputs_in_any_order() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(5, 6)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.a(x) - self.b(y)

    model = Two().eval()
    x, y = torch.randn(3, 4), torch.randn(3, 5)
    program = capture(model, {"y": y, "x": x})
    assert torch.equal(Executor(program).run({"x": x, "y": y})[0], model(x, y))
    assert torch.equal(Executor(program).run({"y": y, "x": x})[0], model(x, y))
    with pytest.raises(DataError, match="takes 2 inputs"):
        Executor(program).run({"x": x})


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


def test_what_cannot_be_captured_says_so() -> None:
    with pytest.raises(CaptureError, match=r"could not capture Branches.*torch\.where"):
        capture(Branches(), torch.randn(2, 4))


def test_wrong_examples_say_so() -> None:
    with pytest.raises(CaptureError, match="does not run on the example"):
        capture(network(), torch.randn(2, 7))
    with pytest.raises(CaptureError, match="does not run on the example"):
        capture(network(), {"nonsense": torch.randn(2, 6)})
    with pytest.raises(ArgumentError, match="holds no tensor"):
        capture(network(), ())
    with pytest.raises(ArgumentError, match="not str"):
        capture(network(), "image.png")
    with pytest.raises(ArgumentError, match=r"expected an nn\.Module, got function"):
        capture(test_wrong_examples_say_so, torch.randn(2))  # type: ignore[arg-type]


def test_models_without_values_say_so() -> None:
    with torch.device("meta"):
        empty = network()
    with pytest.raises(CaptureError, match=r"'0.weight' is on the meta device.*load_state_dict"):
        capture(empty, torch.randn(2, 6))
    lazy = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(CaptureError, match=r"'0.weight' has no shape yet.*run the model once"):
        capture(lazy, torch.randn(2, 6))


def test_computed_weights_say_how_to_bake_them() -> None:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])
    with pytest.raises(CaptureError, match=r"module '0' computes its weight.*remove_parametriz"):
        find_spaces(model, torch.randn(2, 6))
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert find_spaces(model, torch.randn(2, 6))["0"].frozen is None
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(model[3])
    with pytest.raises(CaptureError, match=r"module '3'.*WeightNorm hook.*remove_weight_norm"):
        find_spaces(model, torch.randn(2, 6))


def test_the_model_comes_back_as_it_was() -> None:
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


def test_modes_come_back_after_an_error_too() -> None:
    model = Branches().train()
    with pytest.raises(CaptureError):
        capture(model, torch.randn(2, 4))
    assert model.training
    assert model.a.training


def test_wrappers_are_looked_through() -> None:
    model = network()
    assert unwrap(nn.DataParallel(model)) is model
    assert unwrap(torch.compile(model, backend="eager")) is model
    assert unwrap(torch.compile(nn.DataParallel(model), backend="eager")) is model
    for wrapped in (nn.DataParallel(model), torch.compile(model, backend="eager")):
        x = torch.randn(3, 6).to(model[0].weight.device)
        assert find_spaces(wrapped, x).names == ["0", "3"]
    model.compile(backend="eager")
    assert find_spaces(model, x).names == ["0", "3"]


def test_distributed_data_parallel_is_looked_through(tmp_path, monkeypatch) -> None:
    if not torch.distributed.is_available() or os.name == "nt":
        pytest.skip("this build of torch has no distributed package")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        model = network()
        wrapped = nn.parallel.DistributedDataParallel(model)
        assert unwrap(wrapped) is model
        assert find_spaces(wrapped, torch.randn(3, 6))["0"].frozen is None
    finally:
        torch.distributed.destroy_process_group()

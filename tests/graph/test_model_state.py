"""Running a user's model leaves its modes, buffers and the random state as they were."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, find_spaces
from interpress.graph.example import Example
from interpress.graph.model_state import (
    evaluation,
    output_tensors,
    untouched,
    unwrap,
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


class Stop(Exception):
    pass


def run_inside(context: contextlib.AbstractContextManager[None], body: Callable[[], Any]) -> None:
    """Run `body`, then raise an error, inside the context."""

    def raise_after_body() -> None:
        with context:
            body()
            raise Stop

    with pytest.raises(Stop):
        raise_after_body()


def test_modes_are_restored_module_by_module() -> None:
    model = network()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    assert len(set(modes)) == 2
    with evaluation(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes
    run_inside(evaluation(model), lambda: None)
    assert [module.training for module in model.modules()] == modes


def test_the_attention_fast_path_is_off_inside_and_restored() -> None:
    enabled = torch.backends.mha.get_fastpath_enabled()
    with evaluation(network()):
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled() == enabled
    run_inside(evaluation(network()), lambda: None)
    assert torch.backends.mha.get_fastpath_enabled() == enabled


@pytest.mark.parametrize("context", [evaluation, untouched])
@pytest.mark.parametrize("raises", [False, True])
def test_buffers_are_restored(context: Any, raises: bool) -> None:
    model = network().train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def body() -> None:
        model.train()(torch.randn(4, 6))  # updates the running statistics
        assert not torch.equal(model[1].running_mean, before["1.running_mean"])

    if raises:
        run_inside(context(model), body)
    else:
        with context(model):
            body()
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


@pytest.mark.parametrize("raises", [False, True])
def test_the_random_state_is_restored(raises: bool) -> None:
    model = network()
    before = torch.get_rng_state()
    if raises:
        run_inside(untouched(model), lambda: torch.randn(3))
    else:
        with untouched(model):
            torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_output_tensors_are_flat_and_computed_in_evaluation_mode() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"a": self.dropout(x), "b": [x + 1, (2 * x, "text")]}

    model, x = Nested().train(), torch.randn(3, 4, requires_grad=True)
    outputs = output_tensors(model, Example.of(x))
    assert [torch.equal(a, b) for a, b in zip(outputs, (x, x + 1, 2 * x), strict=True)] == [
        True
    ] * 3
    assert not any(output.requires_grad for output in outputs[1:])
    assert model.training


def test_wrappers_are_removed() -> None:
    model = network()
    assert unwrap(model) is model
    assert unwrap(nn.DataParallel(model)) is model
    assert unwrap(torch.compile(model, backend="eager")) is model
    assert unwrap(torch.compile(nn.DataParallel(model), backend="eager")) is model
    with pytest.raises(ArgumentError, match=r"model is the class Linear; .* Linear\(\.\.\.\)"):
        unwrap(nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"model is a function; pass a torch\.nn\.Module"):
        unwrap(network)  # type: ignore[arg-type]


def test_spaces_of_wrapped_models_are_those_of_the_model() -> None:
    model = network()
    for wrapped in (nn.DataParallel(model), torch.compile(model, backend="eager")):
        x = torch.randn(3, 6).to(model[0].weight.device)
        assert find_spaces(wrapped, x).names == ["0", "3"]
    model.compile(backend="eager")
    assert find_spaces(model, x).names == ["0", "3"]


def test_distributed_data_parallel_is_removed(tmp_path: Path) -> None:
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

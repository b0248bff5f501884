"""Models that write, cache, share or branch: the answer is right, or there is a clear error."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import ArgumentError, CaptureError, SurgeryError, find_spaces
from interpress.surgery.output_difference import difference


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 4)
    )


DATA = torch.randn(160, 8, generator=torch.Generator().manual_seed(1))


def compress(model: nn.Module) -> interpress.Result:
    return interpress.compress(model, DATA, flops=0.5, progress=False)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class CopiesToItself(Wrapped):
    def __deepcopy__(self, memo: Any) -> CopiesToItself:
        return self


def test_a_copy_that_is_the_original_is_refused_and_the_original_unchanged() -> None:
    model = CopiesToItself()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(SurgeryError, match=r"shares its modules with the original"):
        compress(model)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_a_huge_constant_does_not_hide_an_error() -> None:
    expected = torch.randn(2, 6, dtype=torch.float64)
    for constant in (-1e9, 1e10):
        masked = torch.cat([expected, torch.full((2, 1), constant).double()], 1)
        wrong = masked.clone()
        wrong[0, 2] += 1e-3
        assert difference([masked], [masked]) == 0
        assert difference([wrong], [masked]) > 1e-5


class Large(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x * 1e19) * 1e-19


def test_activations_of_1e19_give_an_answer() -> None:
    result = compress(Large())
    assert result.flops <= 0.5
    assert result.agreement is not None
    assert float(result.agreement) > 0.7


def test_threads_leave_the_model_and_the_process_as_they_were() -> None:
    model = mlp().train()
    dtype, fast_path = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    results: list[interpress.Result] = []
    threads = [threading.Thread(target=lambda: results.append(compress(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result.widths == results[0].widths for result in results)
    assert torch.get_default_dtype() == dtype
    assert torch.backends.mha.get_fastpath_enabled() == fast_path
    assert all(module.training for module in model.modules())


class Writes(nn.Module):
    """Counts its calls, re-assigns a buffer, renormalises an embedding, updates a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()
        self.calls = 0
        self.cache: dict[str, Tensor] = {}
        self.embedding = nn.Embedding(4, 8, max_norm=0.1)
        self.offset = nn.Parameter(torch.zeros(4))
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.body(x + self.embedding(torch.zeros(1, dtype=torch.long)))
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)
        self.cache["last"] = y
        with torch.no_grad():
            self.offset.add_(0.1)
        return y


def test_what_forward_writes_reaches_neither_the_original_nor_the_result() -> None:
    model = Writes()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    average = model.average
    result = compress(model)
    smaller = result.model
    assert isinstance(smaller, Writes)
    for network in (model, smaller):
        assert network.calls == 0
        assert network.cache == {}
        state = network.state_dict()
        for name in ("average", "offset", "embedding.weight"):
            assert torch.equal(state[name], before[name])
    assert model.average is average
    assert result.flops <= 0.5


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.few, self.many = mlp(), mlp()
        self.many[4].weight.data.mul_(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.many(x) if x.shape[0] > 50 else self.few(x)


def test_a_branch_on_the_batch_size_is_noticed() -> None:
    with pytest.raises(CaptureError, match="does not compute what it computed on the 4 examples"):
        compress(Branches())


class Sliced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(32, 8)), nn.Parameter(torch.randn(4, 32))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([x @ self.w[:16].T, x @ self.w[16:].T], 1).relu()
        return h[:, :16] @ self.v[:, :16].T + h[:, 16:] @ self.v[:, 16:].T


@pytest.mark.parametrize("budget", ["flops", "width", "error"])
def test_a_budget_is_never_ignored_in_silence(budget: str) -> None:
    with pytest.raises(ArgumentError, match="nothing in this model can shrink"):
        interpress.compress(Sliced(), DATA, progress=False, **{budget: 0.5})


def test_a_result_made_under_inference_mode_can_be_trained() -> None:
    model = mlp()
    with torch.inference_mode():
        result = compress(model)
        spaces = find_spaces(model, DATA[:2], progress=False)
        name = spaces.shrinkable[0].name
        shrunk = interpress.shrink(spaces, {name: range(16)})
    for network in (result.model, shrunk):
        network(DATA).sum().backward()
        assert all(p.grad is not None for p in network.parameters())


class Complex(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return torch.complex(y, y)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_models_that_cannot_be_compressed_are_refused_with_the_reason() -> None:
    with pytest.raises(CaptureError, match="meta device"):
        compress(mlp().to("meta"))
    with pytest.raises(CaptureError, match="TorchScript"):
        compress(torch.jit.trace(mlp(), DATA[:2]))
    with pytest.raises(ArgumentError, match="complex"):
        compress(Complex())
    with torch.inference_mode():
        created_inside = mlp()
    with pytest.raises(CaptureError, match="inference_mode"):
        compress(created_inside)

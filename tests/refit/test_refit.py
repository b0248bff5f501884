"""Least-squares refit of whole networks, from networks that were cut without `T`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from tests.blobs import Blobs
from torch import Tensor, nn

from interpress import find_spaces, shrink
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.model_state import output_tensors
from interpress.refit.refit import RefitResult, examples_needed, program_of, refit
from interpress.surgery.cut import Cut
from interpress.surgery.weights import copy_with, shrunk_copy


class Residual(nn.Module):
    """A residual connection around one layer, and batch norm behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.branch = nn.Conv2d(12, 16, 1)
        self.back = nn.Conv2d(16, 12, 1)
        self.norm = nn.BatchNorm2d(12)
        self.last = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        x = (x + self.norm(self.back(self.branch(x).relu()))).relu()
        return self.last(x.mean((2, 3)))


def refitted(
    model: nn.Module, x: Tensor, kept: Mapping[str, Tensor], weights: Tensor | None = None
) -> tuple[RefitResult, nn.Module, nn.Module]:
    """Cut without `T`, refit, and return the result with the networks before and after."""
    spaces = find_spaces(model.eval(), x[:4])
    cut = Cut(spaces, dict(kept))
    smaller = shrink(spaces, kept)
    result = refit(cut, smaller, [Example.of(part) for part in x.split(100)],
                   sample_weights=weights)  # fmt: skip
    return result, smaller, copy_with(smaller, result.weights)


def relative_error(model: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        y = model(x)
        return float((other(x) - y).norm() / (y - y.mean(0)).norm())


def test_a_redundant_channel_is_compensated_by_its_consumers() -> None:
    """Half of the hidden channels repeat the others, so least squares can be exact."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 6))
    with torch.no_grad():
        model[0].weight[12:], model[0].bias[12:] = 2 * model[0].weight[:12], 2 * model[0].bias[:12]
    x, test = torch.randn(2, 600, 10, generator=torch.Generator().manual_seed(1))
    result, before, after = refitted(model, x, {"0": torch.arange(12)})
    assert set(result.weights) == {"2.weight", "2.bias"}
    assert result.skipped is None
    assert relative_error(model, before, test) > 0.3
    assert relative_error(model, after, test) < 1e-2


def test_a_residual_connection_makes_up_for_earlier_losses() -> None:
    torch.manual_seed(0)
    model, generator = Residual(), torch.Generator().manual_seed(2)
    x = torch.randn(200, 3, 6, 6, generator=generator)
    test = torch.randn(200, 3, 6, 6, generator=generator)
    kept = {"first": torch.arange(0, 12, 2), "branch": torch.arange(0, 16, 2)}
    result, before, after = refitted(model, x, kept)
    assert {"branch.weight", "back.weight", "last.weight"} <= result.errors.keys()
    assert all(error <= earlier for earlier, error in result.errors.values())
    assert relative_error(model, after, test) < 0.5 * relative_error(model, before, test)


def test_heavy_examples_are_fitted_better() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 6))
    x = torch.randn(400, 10, generator=torch.Generator().manual_seed(1))
    x[:200] += 1.5
    kept = {"0": torch.arange(6)}
    errors = []
    for heavy in (1.0, 8.0):
        weights = torch.ones(400)
        weights[:200] = heavy
        shuffled = torch.randperm(400, generator=torch.Generator().manual_seed(3))
        _, _, after = refitted(model, x[shuffled], kept, weights[shuffled])
        errors.append(relative_error(model, after, x[:200]))
    assert errors[1] < 0.95 * errors[0]


def test_the_same_seed_gives_the_same_weights() -> None:
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(60, 3, 6, 6, generator=torch.Generator().manual_seed(2))
    kept = {"first": torch.arange(0, 12, 2)}
    first, again = (refitted(model, x, kept)[0].weights for _ in range(2))
    assert first.keys() == again.keys()
    assert len(first) > 0
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_progress_counts_all_operators() -> None:
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(20, 3, 6, 6)
    spaces = find_spaces(model.eval(), x[:4])
    kept = {"branch": torch.arange(8)}
    done: list[int] = []
    refit(Cut(spaces, kept), shrink(spaces, kept), [Example.of(x)], done=done.append)
    assert sum(done) == sum(1 for _ in spaces.program.operators())


class WidthDependent(nn.Module):
    """Computes the same with another operator if its hidden layer is narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x).view(-1, self.a.out_features)
        return self.b(x.relu() if self.a.out_features == 12 else x.clamp(min=0))


def test_a_network_that_runs_other_operators_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("a size that does not follow the cut")

    monkeypatch.setattr("interpress.refit.refit.resized_program", fails)
    torch.manual_seed(0)
    result, _, _ = refitted(WidthDependent(), torch.randn(60, 6), {"a": torch.arange(6)})
    assert result.weights == {}
    assert result.skipped == "the smaller network runs other operators than the original"


def test_grouped_convolutions_run_with_their_smaller_number_of_groups() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1)
    )
    x = torch.randn(80, 3, 6, 6)
    result, before, after = refitted(model, x, {"0": torch.arange(0, 8, 2)})
    assert result.skipped is None
    assert "3.weight" in result.weights
    assert relative_error(model, after, x) < relative_error(model, before, x)


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (Blobs(), (4, 8), 8 * 48),
        (nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3)),
         (4, 3, 12, 12), 8 * 16 * 9 // 16),
    ],
)  # fmt: skip
def test_as_many_examples_are_needed_as_the_layers_can_use(
    model: nn.Module, shape: tuple[int, ...], expected: int
) -> None:
    assert examples_needed(find_spaces(model, torch.randn(shape)).program) == expected


def test_weights_stored_as_in_by_out_are_refitted() -> None:
    """The layers of GPT-2 multiply flattened rows by a weight of shape (in, out)."""
    from tests.pretrained.models import build, texts

    model, x = build("gpt2"), texts(200)
    spaces = find_spaces(model, x[:4], progress=False)
    space = next(s for s in spaces.shrinkable if "mlp" in s.name)
    cut = Cut(spaces, {space.name: torch.arange(space.size // 2)})
    smaller = shrink(spaces, cut.kept)
    examples = [Example.of(part).without_cache(model) for part in x.split(50)]
    result = refit(cut, smaller, examples, row_weights={})
    name = f"{space.name.removesuffix('c_fc')}c_proj.weight"
    before, after = result.errors[name]
    assert after < before
    assert result.weights[name].shape == smaller.get_parameter(name).shape
    fitted, fresh = copy_with(smaller, result.weights), texts(50, seed=1)
    with torch.no_grad():
        y, cut_y, fitted_y = (network(fresh).logits for network in (model, smaller, fitted))
    assert float((fitted_y - y).norm()) < 0.95 * float((cut_y - y).norm())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_sizes_that_are_constants_of_the_program_follow_the_cut(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 splits query, key and value by a constant; Llama repeats keys by one."""
    from tests.pretrained.models import build, texts

    spaces = find_spaces(build(name), texts(4), progress=False)
    space = next(s for s in spaces.shrinkable if s.heads and len(s.cells.unique()) == 1)
    kept = torch.arange(space.size - space.step)
    cut = Cut(spaces, {space.name: kept})
    smaller = shrink(spaces, cut.kept)

    def refused(*_: object) -> None:
        raise AssertionError("the smaller network is captured")

    monkeypatch.setattr("interpress.refit.refit.capture", refused)
    program = program_of(cut, smaller)
    example = Example.of(texts(3, seed=1)).without_cache(smaller)
    (expected,) = output_tensors(smaller, example)
    (got,) = Executor(program).run(example)
    assert torch.allclose(got, expected, atol=1e-5)


def _gives(monkeypatch: pytest.MonkeyPatch, of_original: float, of_smaller: float) -> bool:
    """Return whether a program is accepted if the two models' own outputs are off by a factor."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    spaces = find_spaces(model, torch.randn(4, 6), progress=False)
    cut = Cut(spaces, {spaces.shrinkable[0].name: torch.arange(4)})
    smaller = shrunk_copy(cut)
    errors = {id(spaces.program.model): of_original, id(smaller): of_smaller}

    def inexact(network: nn.Module, example: Example) -> list[Tensor]:
        return [(1 + errors[id(network)]) * tensor for tensor in output_tensors(network, example)]

    monkeypatch.setattr("interpress.refit.refit.output_tensors", inexact)
    return program_of(cut, smaller).nodes is spaces.program.nodes


@pytest.mark.parametrize(
    ("of_original", "of_smaller", "accepted"),
    [(0.0, 1e-6, True), (0.0, 2e-3, False), (1e-3, 2e-3, True), (1e-3, 5e-2, False)],
)
def test_a_program_is_reused_if_it_differs_by_no_more_than_the_usual_rounding(
    monkeypatch: pytest.MonkeyPatch, of_original: float, of_smaller: float, accepted: bool
) -> None:
    assert _gives(monkeypatch, of_original, of_smaller) is accepted

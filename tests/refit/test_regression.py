"""Dense layers as regressions, ridge regression aware of ReLU, and backward elimination."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.graph.dense import dense_layer_of
from interpress.linalg.elimination import RIDGE, Consumer, eliminate
from interpress.refit.regression import Regression

LAYERS = {
    "linear": (nn.Linear(6, 5), (7, 6)),
    "linear over tokens": (nn.Linear(6, 5), (3, 4, 6)),
    "conv1d": (nn.Conv1d(6, 4, 3, stride=2, padding=2), (3, 6, 11)),
    "conv2d": (
        nn.Conv2d(6, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        (3, 6, 9, 8),
    ),
    "conv2d in groups": (nn.Conv2d(6, 4, 3, padding=1, groups=2), (3, 6, 5, 5)),
    "depthwise": (nn.Conv2d(6, 12, 3, padding=1, groups=6, bias=False), (3, 6, 5, 5)),
    "conv3d": (nn.Conv3d(2, 3, 2, padding=1), (2, 2, 4, 5, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("some", [False, True])
def test_inputs_times_weights_are_the_outputs(name: str, some: bool) -> None:
    layer, shape = LAYERS[name]
    model = nn.Sequential(layer)
    program = capture(model, torch.randn(shape))
    node = next(n for n in program.nodes if n.op == "call_function")
    dense = dense_layer_of(program, node, program.parameters())
    assert dense is not None
    x = torch.randn(shape)
    y = layer(x)
    at = dense.positions(x, 6, torch.Generator().manual_seed(0)) if some else None
    X = dense.inputs(x, at)  # (rows, groups, unknowns)
    weight = layer.weight.reshape(dense.groups, -1, X.shape[-1])
    found = torch.einsum("rgu,gou->rgo", X, weight).reshape(len(X), -1)
    found = found + (0 if layer.bias is None else layer.bias)
    torch.testing.assert_close(found, dense.outputs(y, at), atol=1e-5, rtol=1e-4)
    if some:
        assert len(X) < len(dense.inputs(x, None))


def problem(rows: int = 4000, relu: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 1, 12, generator=generator)
    W = torch.randn(5, 12, generator=generator)
    return X, W, X[:, 0] @ W.T + 0.5


def test_the_exact_answer_is_found_from_a_wrong_start() -> None:
    X, W, wish = problem()
    task = Regression([X], wish, torch.zeros_like(wish), scale=None, relu=False, shifts=True)
    found = task.solve(torch.zeros(5, 12), torch.zeros(5))
    assert found.change is not None
    torch.testing.assert_close(found.change, W, atol=5e-3, rtol=5e-3)
    torch.testing.assert_close(found.shift, torch.full((5,), 0.5), atol=5e-3, rtol=5e-3)
    assert found.after < 1e-4 * found.before


def test_nothing_changes_where_nothing_is_wrong_or_only_noise_is_left() -> None:
    X, W, wish = problem()
    task = Regression([X], wish, torch.zeros_like(wish), scale=None, relu=False, shifts=True)
    assert task.solve(W, torch.full((5,), 0.5)).change is None
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    few = Regression([X[:60]], wish[:60] + 5 * noise, torch.zeros(60, 5), scale=None, relu=False,
                     shifts=False)  # fmt: skip
    found = few.solve(W, torch.full((5,), 0.5))
    assert found.after <= found.before


def test_a_batch_norm_scale_and_an_offset_are_taken_into_account() -> None:
    X, W, wish = problem()
    scale = torch.tensor([2.0, -1.0, 0.5, 3.0, 1e-9])
    offset = torch.randn(len(X), 5, generator=torch.Generator().manual_seed(2))
    target = scale * wish + offset
    task = Regression([X], target, offset, scale=scale, relu=False, shifts=True)
    found = task.solve(torch.zeros(5, 12), None)
    assert found.change is not None
    torch.testing.assert_close(found.change[:4], W[:4], atol=1e-2, rtol=1e-2)
    assert bool((found.change[4] == 0).all())  # an output that nothing comes of stays


def test_with_relu_the_loss_after_it_counts() -> None:
    X, _, wish = problem()
    narrow = X[..., :7]  # too few inputs to be exact
    losses = {}
    for relu in (False, True):
        task = Regression(
            [narrow], wish, torch.zeros_like(wish), scale=None, relu=relu, shifts=True
        )
        found = task.solve(torch.zeros(5, 7), torch.zeros(5))
        assert found.change is not None
        y = narrow[:, 0] @ found.change.T + found.shift
        losses[relu] = float((y.relu() - wish.relu()).square().mean())
    assert losses[True] < 0.97 * losses[False]


def error_without(G: Tensor, U: Tensor, dropped: set[int], blocks: Tensor) -> float:
    """The ridge error of the best weights without some blocks, from scratch."""
    size = G.diagonal().mean()
    A = G / size + RIDGE * torch.eye(len(G), dtype=G.dtype)
    kept = [int(i) for b, block in enumerate(blocks) if b not in dropped for i in block]
    if not kept:
        return float((U * (A @ U)).sum() * size)
    W = torch.linalg.solve(A[kept][:, kept], A[kept] @ U)
    D = U.clone()
    D[kept] -= W
    return float((D * (A @ D)).sum() * size)


def test_elimination_drops_the_best_block_each_time_and_knows_its_error() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 12, generator=generator, dtype=torch.float64)
    X[:, 6:] = X[:, :6] @ torch.randn(6, 6, generator=generator, dtype=torch.float64)
    G, U = X.T @ X, torch.randn(12, 4, generator=generator, dtype=torch.float64)
    blocks = torch.arange(12).reshape(6, 2)
    order, errors = eliminate([Consumer(G, U, blocks, 1.0)])
    assert sorted(order.tolist()) == list(range(6))
    assert errors[-1] == 0.0
    gone: set[int] = set()
    for k in range(6, 0, -1):  # from all blocks down
        costs = {b: error_without(G, U, gone | {b}, blocks) for b in range(6) if b not in gone}
        best = min(costs, key=costs.__getitem__)
        assert int(order[k - 1]) == best
        gone.add(best)
        assert float(errors[k - 1]) == pytest.approx(costs[best], rel=1e-8)


def test_elimination_sums_over_readers_and_spares_what_is_no_block() -> None:
    generator = torch.Generator().manual_seed(5)
    Gs, Us = [], []
    for _ in range(2):
        X = torch.randn(100, 9, generator=generator, dtype=torch.float64)
        Gs.append(X.T @ X)
        Us.append(torch.randn(9, 3, generator=generator, dtype=torch.float64))
    blocks = torch.arange(8).reshape(4, 2)  # input 8 belongs to another space
    readers = [Consumer(G, U, blocks, 2.0) for G, U in zip(Gs, Us, strict=True)]
    order, errors = eliminate(readers)
    last = {int(order[-1])}
    per_reader = [error_without_keeping(G, U, last, blocks) for G, U in zip(Gs, Us, strict=True)]
    assert float(errors[3]) == pytest.approx(sum(per_reader) / 2.0, rel=1e-8)


def error_without_keeping(G: Tensor, U: Tensor, dropped: set[int], blocks: Tensor) -> float:
    spare = [i for i in range(len(G)) if i not in set(blocks.reshape(-1).tolist())]
    padded = [list(block) for block in blocks.tolist()] + [[i] for i in spare]
    return error_without(G, U, dropped, padded)  # type: ignore[arg-type]


def test_many_blocks_go_a_few_at_a_time_and_nearly_as_well() -> None:
    generator = torch.Generator().manual_seed(7)
    base = torch.randn(500, 20, generator=generator, dtype=torch.float64)
    X = base @ torch.randn(20, 64, generator=generator, dtype=torch.float64)
    G, U = X.T @ X, torch.randn(64, 8, generator=generator, dtype=torch.float64)
    energy = float((U * (G @ U)).sum())
    order, errors = eliminate([Consumer(G, U, torch.arange(64).reshape(64, 1), energy)])
    assert float(errors[32]) < 0.02
    assert all(a >= b for a, b in itertools.pairwise(errors.tolist()))
    assert len(set(order.tolist())) == 64

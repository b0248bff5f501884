"""The same answers on a GPU as on the CPU; skipped where there is none."""

import pytest
import torch
from benchmarks.matrices import FAMILIES

from interpress.linalg import (
    FactorStream,
    RFactor,
    column_ordering,
    interpolative_decomposition,
    order_as_given,
    order_by_pivoting,
    order_by_weights,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_same_ordering_and_T_as_on_the_cpu(name: str) -> None:
    A = FAMILIES[name](200, 0)
    ours, theirs = column_ordering(A.cuda()), column_ordering(A)
    assert ours.R.is_cuda
    if name not in ("hilbert", "wide"):
        assert abs(ours.numerical_rank - theirs.numerical_rank) <= 1
    sure = int((theirs.diagonal > 1e-6 * theirs.diagonal[0]).sum())
    sure = min(sure, 20) if name in ("kahan", "hilbert") else sure
    assert torch.equal(ours.order[:sure].cpu(), theirs.order[:sure])
    norm = float(torch.linalg.matrix_norm(A))
    for k in (1, sure // 2, sure):
        found = ours.at_rank(k)
        error = A.cuda() - A.cuda()[:, found.kept] @ found.T
        true = float(torch.linalg.matrix_norm(error))
        assert true == pytest.approx(found.frobenius_error, rel=1e-8, abs=1e-12 * norm)
        torch.testing.assert_close(found.T.cpu(), theirs.at_rank(k).T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_streams_any_dtype_and_ignores_tf32(dtype: torch.dtype) -> None:
    rows = torch.randn(5000, 96, device="cuda").to(dtype)
    expected = rows.double().T @ rows.double()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for route in ("gram", "tsqr"):
            factor = FactorStream(96, route=route).add(rows).factor()
            assert float((factor.G - expected).norm() / expected.norm()) < 1e-13
        single = FactorStream(96, route="tsqr", dtype=torch.float32).add(rows).factor()
        assert float((single.G.cuda() - expected).norm() / expected.norm()) < 1e-5
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_weights_given_order_bounds_and_accuracy() -> None:
    Z = FAMILIES["activations"](150, 0)
    U = torch.randn(150, 60, dtype=torch.float64)
    H = U @ U.T
    host = RFactor.from_gram(Z.T @ Z, len(Z))
    device = RFactor.from_gram((Z.T @ Z).cuda(), len(Z))
    ours, theirs = order_by_weights(device, H), order_by_weights(host, H)
    assert torch.equal(ours.order[:75].cpu(), theirs.order[:75])
    order = torch.randperm(150)
    torch.testing.assert_close(
        order_as_given(device, order).frobenius_tails.cpu(),
        order_as_given(host, order).frobenius_tails,
    )
    found = interpolative_decomposition(Z.float().cuda(), eps=1e-2, max_entry=1.5)
    assert found.T.is_cuda
    assert found.T.dtype == torch.float32
    error = Z.float().cuda().double() - Z.float().cuda()[:, found.kept].double() @ found.T.double()
    norm = torch.linalg.matrix_norm(Z, 2)
    assert float(torch.linalg.matrix_norm(error, 2)) <= 1.001e-2 * float(norm)
    assert found.largest_entry <= 1.5 * (1 + 1e-6)


def test_streams_move_between_devices() -> None:
    rows = torch.randn(300, 40)
    mixed = FactorStream(40).add(rows[:100].cuda()).add(rows[100:200])
    mixed.merge(FactorStream(40).add(rows[200:]))
    whole = order_by_pivoting(FactorStream(40).add(rows).factor())
    assert torch.equal(order_by_pivoting(mixed.factor()).order.cpu(), whole.order)
    saved = FactorStream(40, device="cpu").add(rows.cuda())
    assert saved.factor().device.type == "cpu"


def test_no_host_synchronisation_per_pivot() -> None:
    """Elimination itself must not wait for the GPU even once."""
    from interpress.linalg import cholesky

    G = torch.randn(400, 200, device="cuda", dtype=torch.float64)
    G = G.T @ G
    gathered = cholesky._gathered
    try:
        cholesky._gathered = lambda *all: all  # it reads the count of columns at the end
        cholesky._eliminate(G, 0.0, F=G)  # warm up
        torch.cuda.set_sync_debug_mode("error")
        cholesky._eliminate(G, 0.0)
        cholesky._eliminate(G, 0.0, F=G)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        cholesky._gathered = gathered

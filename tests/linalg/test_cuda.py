"""Results on a GPU equal those on the CPU; skipped without a GPU."""

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
    on_gpu, on_cpu = column_ordering(A.cuda()), column_ordering(A)
    assert on_gpu.R.is_cuda
    if name not in ("hilbert", "wide"):
        assert abs(on_gpu.numerical_rank - on_cpu.numerical_rank) <= 1
    certain = int((on_cpu.diagonal > 1e-6 * on_cpu.diagonal[0]).sum())
    certain = min(certain, 20) if name in ("kahan", "hilbert") else certain
    assert torch.equal(on_gpu.order[:certain].cpu(), on_cpu.order[:certain])
    norm = float(torch.linalg.matrix_norm(A))
    for k in (1, certain // 2, certain):
        result = on_gpu.at_rank(k)
        error = A.cuda() - A.cuda()[:, result.kept] @ result.T
        true = float(torch.linalg.matrix_norm(error))
        assert true == pytest.approx(result.frobenius_error, rel=1e-8, abs=1e-12 * norm)
        torch.testing.assert_close(result.T.cpu(), on_cpu.at_rank(k).T, rtol=1e-4, atol=1e-5)


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
    on_gpu, on_cpu = order_by_weights(device, H), order_by_weights(host, H)
    assert torch.equal(on_gpu.order[:75].cpu(), on_cpu.order[:75])
    order = torch.randperm(150)
    torch.testing.assert_close(
        order_as_given(device, order).frobenius_tails.cpu(),
        order_as_given(host, order).frobenius_tails,
    )
    result = interpolative_decomposition(Z.float().cuda(), eps=1e-2, max_entry=1.5)
    assert result.T.is_cuda
    assert result.T.dtype == torch.float32
    error = (
        Z.float().cuda().double() - Z.float().cuda()[:, result.kept].double() @ result.T.double()
    )
    norm = torch.linalg.matrix_norm(Z, 2)
    assert float(torch.linalg.matrix_norm(error, 2)) <= 1.001e-2 * float(norm)
    assert result.largest_entry <= 1.5 * (1 + 1e-6)


def test_streams_move_between_devices() -> None:
    rows = torch.randn(300, 40)
    mixed = FactorStream(40).add(rows[:100].cuda()).add(rows[100:200])
    mixed.merge(FactorStream(40).add(rows[200:]))
    whole = order_by_pivoting(FactorStream(40).add(rows).factor())
    assert torch.equal(order_by_pivoting(mixed.factor()).order.cpu(), whole.order)
    saved = FactorStream(40, device="cpu").add(rows.cuda())
    assert saved.factor().device.type == "cpu"


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_elimination_does_not_synchronize_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sync debug mode "error", every synchronization during the elimination raises."""
    from interpress.linalg import cholesky

    Z = torch.randn(400, 200, device="cuda", dtype=torch.float64)
    G = Z.T @ Z
    # the last step reads the number of independent columns, which needs one synchronization
    monkeypatch.setattr(cholesky, "_drop_dependent", lambda *arguments: arguments)
    cholesky._eliminate(G, 0.0, F=G)  # warm up
    try:
        torch.cuda.set_sync_debug_mode("error")
        pivoted_order = cholesky._eliminate(G, 0.0)[0]
        weighted_order = cholesky._eliminate(G, 0.0, F=G)[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    all_columns = torch.arange(200, device="cuda")
    assert torch.equal(pivoted_order.sort().values, all_columns)
    assert torch.equal(weighted_order.sort().values, all_columns)

"""Streams of rows: equal to one factorization; precision, memory, merging and bad rows."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from tests.linalg.matrices import relative_difference
from torch import Tensor

from interpress.errors import ArgumentError, DataError
from interpress.linalg import FactorStream, RFactor, order_by_pivoting
from interpress.linalg.factor import gram, triangle
from interpress.linalg.precision import EPS32
from interpress.linalg.stream import Route, _row_chunks

ROUTES: list[Route] = ["gram", "tsqr"]


def rows(count: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(count, n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
def test_streamed_equals_one_shot(route: Route, batch: int) -> None:
    Z = rows(1000, 48)
    stream = FactorStream(48, route=route)
    for piece in Z.split(batch):
        stream.add(piece)
    factor = stream.factor()
    assert factor.rows == stream.rows == 1000
    assert relative_difference(factor.R, triangle(Z.double())) < 1e-12
    assert relative_difference(factor.G, Z.double().T @ Z.double()) < 1e-13
    assert torch.equal(factor.R, factor.R.triu())


@pytest.mark.parametrize("route", ROUTES)
def test_fewer_rows_than_columns(route: Route) -> None:
    Z = rows(5, 20)
    factor = FactorStream(20, route=route).add(Z).factor()
    assert relative_difference(factor.R.T @ factor.R, Z.double().T @ Z.double()) < 1e-12
    assert order_by_pivoting(factor).numerical_rank == 5


@pytest.mark.parametrize("route", ROUTES)
def test_merged_halves_equal_the_whole(route: Route) -> None:
    Z = rows(600, 32)
    whole = FactorStream(32, route=route).add(Z)
    left, right = (FactorStream(32, route=route).add(half) for half in Z.split(300))
    merged = left.merge(right)
    assert (merged.rows, merged.batches) == (600, 2)
    assert relative_difference(merged.factor().R, whole.factor().R) < 1e-12
    assert right.rows == 300  # the merged stream is unchanged
    assert relative_difference(right.factor().R, triangle(Z[300:].double())) < 1e-12


def test_merging_with_an_empty_stream_changes_nothing() -> None:
    Z = rows(50, 8)
    full, empty = FactorStream(8).add(Z), FactorStream(8)
    before = full.factor().R
    assert torch.equal(full.merge(FactorStream(8)).factor().R, before)
    assert torch.equal(empty.merge(full).factor().R, before)
    empty.add(Z)  # the two streams share no tensor
    assert torch.equal(full.factor().R, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype(dtype: torch.dtype) -> None:
    Z = rows(100, 12).to(dtype)
    stream = FactorStream(12).add(Z)
    assert stream.route == ("tsqr" if dtype == torch.float64 else "gram")
    assert relative_difference(stream.factor().R, triangle(Z.double())) < 1e-13


def test_float8_rows() -> None:
    Z = rows(100, 12).to(torch.float8_e4m3fn)
    assert relative_difference(FactorStream(12).add(Z).factor().R, triangle(Z.double())) < 1e-12


@pytest.mark.parametrize("route", ROUTES)
def test_thousands_of_batches_of_one_row(route: Route) -> None:
    """Rounding errors must not look like independent columns, and must stay in the certificate."""
    torch.manual_seed(0)
    row = torch.rand(1, 8) + 0.1
    stream = FactorStream(8, route=route, dtype=torch.float32 if route == "tsqr" else None)
    for _ in range(4000):
        stream.add(row)
    for _ in range(20):
        stream.add(row.expand(5000, 8))
    ordering = order_by_pivoting(stream.factor())
    assert ordering.numerical_rank == 1
    result = ordering.for_accuracy(1e-4)
    error = row.double() - row.double()[:, result.kept] @ result.T
    assert float(error.norm()) <= 1e-4 * float(row.norm())


@pytest.mark.parametrize("dim", [1, -3])
def test_any_channel_dimension_in_small_pieces(dim: int) -> None:
    images = torch.randn(6, 5, 9, 7)
    expected = images.movedim(1, -1).reshape(-1, 5).double()
    stream = FactorStream(5).add(images, dim=dim)
    assert stream.rows == 6 * 9 * 7
    assert relative_difference(stream.factor().R, triangle(expected)) < 1e-12
    for limit in (1, 4, 50, 100, 1000):
        pieces = list(_row_chunks(images.movedim(1, -1), limit))
        assert max(map(len, pieces)) <= limit
        assert torch.equal(torch.cat(pieces).double(), expected)


def smallest_resolved(factor: RFactor, true: Tensor) -> float:
    """Return the smallest |r_kk / r_11| that is still correct to 10 %."""
    diagonal = order_by_pivoting(factor).diagonal
    correct = ((diagonal - true).abs() <= 0.1 * true).long().cumprod(0).bool()
    return float((true / true[0])[correct].min())


def test_precision_reaches_the_rounding_error_of_float32() -> None:
    """Float32 rounds at 6e-8. A float64 Gram matrix comes close to it, a float32 one does not."""
    n = 128
    left = torch.linalg.qr(rows(4000, n).double()).Q
    right = torch.linalg.qr(rows(n, n, 1).double()).Q
    Z = (left * torch.logspace(0, -9, n).double() @ right).float()
    true = order_by_pivoting(RFactor.from_root(Z.double(), len(Z))).diagonal
    assert smallest_resolved(FactorStream(n, route="gram").add(Z).factor(), true) < 2.5e-7
    single = FactorStream(n, route="tsqr", dtype=torch.float32).add(Z).factor()
    assert smallest_resolved(single, true) < 2e-6
    assert smallest_resolved(FactorStream(n, route="tsqr").add(Z).factor(), true) < 1e-7
    naive = RFactor.from_gram(gram(Z).double(), len(Z))
    assert smallest_resolved(naive, true) > 5e-4  # a float32 Gram matrix is not enough


def test_slow_float64_devices_get_tsqr_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpress.linalg.stream.has_fast_float64", lambda device: False)
    stream = FactorStream(6).add(rows(40, 6))
    assert stream.route == "tsqr"
    assert stream._sum is not None
    assert stream._sum.kind == "float32 tsqr"
    assert stream.factor().floor == 8 * EPS32


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_bad_rows_are_named_and_leave_the_stream_unchanged(route: Route, bad: float) -> None:
    stream = FactorStream(4, route=route).add(rows(10, 4))
    before = stream.factor().R
    batch = rows(20, 4)
    batch[7, 2] = batch[7, 3] = batch[11, 0] = bad
    with pytest.raises(DataError) as caught:
        stream.add(batch)
    message = str(caught.value)
    assert "batch 2: 2 of its 20 rows hold NaN or Inf" in message
    assert f"first: row 7, channel 2 is {bad}" in message
    assert "10 rows added before are kept" in message
    assert torch.equal(stream.factor().R, before)
    assert (stream.rows, stream.batches) == (10, 1)


@pytest.mark.parametrize("route", ROUTES)
def test_an_interrupt_leaves_the_stream_unchanged(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FactorStream(4, route=route).add(rows(10, 4))
    before = stream.factor().R

    def interrupted(batch: Tensor, limit: int):
        yield batch[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr("interpress.linalg.stream._row_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.add(rows(20, 4))
    assert torch.equal(stream.factor().R, before)
    assert stream.rows == 10


def test_the_batch_may_change_after_it_was_added() -> None:
    """Pending rows must not be views of the caller's tensor."""
    batch = rows(3, 8).double()
    original = batch.clone()
    stream = FactorStream(8).add(batch)
    batch.zero_()
    assert relative_difference(stream.factor().G, original.T @ original) < 1e-13


def test_magnitudes_whose_squares_overflow_or_underflow_are_refused() -> None:
    for route in ROUTES:
        stream = FactorStream(3, route=route).add(rows(9, 3))
        with pytest.raises(DataError, match=r"magnitude of .*e\+1[67].* 9 rows .* Scale the data"):
            stream.add(1e170 * rows(9, 3).double())
        stream.add(1e-170 * rows(9, 3).double())  # negligible beside ordinary rows
        assert (
            relative_difference(stream.factor().G, rows(9, 3).double().T @ rows(9, 3).double())
            < 1e-13
        )
        with pytest.raises(DataError, match=r"too small to square.*scale the data up"):
            FactorStream(3, route=route).add(1e-170 * rows(9, 3).double()).factor()
    with pytest.raises(DataError, match="too large to square in the arithmetic of this stream"):
        FactorStream(3, dtype=torch.float32).add(1e39 * rows(9, 3).double())
    for scale in (1e-30, 1e30):
        scaled = FactorStream(3, dtype=torch.float32).add(scale * rows(9, 3)).factor()
        assert relative_difference(scaled.R / scale, triangle(rows(9, 3).double())) < 1e-5
    with pytest.raises(DataError, match="too small to square"):
        FactorStream(3, dtype=torch.float32).add(1e-60 * rows(9, 3).double()).factor()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FactorStream(0), "n=0 columns; give a whole number of at least 1"),
        (lambda: FactorStream(2.5), "n=2.5 columns"),
        (lambda: FactorStream(3, route="qr"), "route='qr'; choose one of auto, gram, tsqr"),
        (lambda: FactorStream(3, dtype=torch.float16), "choose torch.float32 or torch.float64"),
        (lambda: FactorStream(3, route="gram", dtype=torch.float32), "use route='tsqr'"),
        (lambda: FactorStream(3).factor(), "no rows were added; call add"),
        (lambda: FactorStream(3).add([[1.0, 2.0, 3.0]]), "got a list; pass a torch.Tensor"),
        (
            lambda: FactorStream(3).add(torch.ones(2, 3).long()),
            "int64; convert them to a float dtype",
        ),
        (lambda: FactorStream(3).add(torch.ones(0, 3)), r"batch is empty, shape \(0, 3\)"),
        (lambda: FactorStream(3).add(torch.ones(2, 4)), "has 4 channels, but this stream has 3"),
        (
            lambda: FactorStream(3).add(torch.ones(2, 3), dim=2),
            r"dim=2 for a tensor of shape \(2, 3\)",
        ),
        (lambda: FactorStream(3).add(torch.tensor(1.0)), "dim=-1 for a tensor"),
        (lambda: FactorStream(3).add(torch.ones(2, 3), dim=None), "dim=None for a tensor"),
        (
            lambda: FactorStream(3).add(torch.ones(2, 3, device="meta")),
            "on meta; pass a dense tensor",
        ),
        (lambda: FactorStream(3).add(torch.eye(3).to_sparse()), "torch.sparse_coo tensor"),
        (lambda: FactorStream(3).merge(None), "got a NoneType; pass another FactorStream"),
        (
            lambda: FactorStream(3, route="tsqr").merge(FactorStream(3).add(torch.ones(2, 3))),
            "float64 gram stream into a tsqr one",
        ),
        (
            lambda: FactorStream(3, dtype=torch.float32).merge(
                FactorStream(3, route="tsqr").add(torch.ones(2, 3))
            ),
            "float64 tsqr stream into a float32 tsqr one",
        ),
        (lambda: FactorStream(3).merge(FactorStream(4)), "4 columns into one of 3; merge streams"),
        (
            lambda: (
                FactorStream(3, route="gram")
                .add(torch.ones(2, 3))
                .merge(FactorStream(3, route="tsqr").add(torch.ones(2, 3)))
            ),
            "float64 tsqr stream into a float64 gram one; create both with the same route",
        ),
        (
            lambda: (
                FactorStream(3, route="tsqr")
                .add(torch.ones(2, 3))
                .merge(FactorStream(3, route="tsqr", dtype=torch.float32).add(torch.ones(2, 3)))
            ),
            "float32 tsqr stream into a float64 tsqr one",
        ),
    ],
)
def test_bad_arguments_name_the_value_and_the_remedy(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


MEMORY_SCRIPT = """
    import json, torch
    from interpress.linalg import FactorStream

    def status(field):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024

    torch.manual_seed(0)
    batch = torch.empty(4096, 512)
    # allocate the buffers of the BLAS library before the measurement
    square = torch.mm(batch.double().T, batch.double())
    torch.linalg.eigh(square), torch.linalg.qr(square)
    del square
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # reset the peak
    before = status("VmRSS")
    stream = FactorStream(512, route={route!r})
    for _ in range({rows} // 4096):
        stream.add(batch.normal_())
    stream.add(batch.normal_()[: {rows} % 4096])
    R = stream.factor().R
    print(json.dumps({{"rows": stream.rows, "extra": status("VmHWM") - before}}))
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read on Linux"
)
@pytest.mark.parametrize(
    ("route", "count"),
    [
        ("gram", 200_000),
        ("tsqr", 100_000),
        pytest.param("gram", 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_memory_does_not_grow_with_the_rows(route: str, count: int) -> None:
    script = textwrap.dedent(MEMORY_SCRIPT.format(route=route, rows=count))
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    report = json.loads(process.stdout)
    assert report["rows"] == count
    assert report["extra"] < 100, report  # MiB


@pytest.mark.slow
def test_a_million_rows_equal_the_one_shot_factor() -> None:
    Z = rows(1_000_000, 512)
    stream = FactorStream(512)
    for piece in Z.split(4096):
        stream.add(piece)
    halves = [FactorStream(512).add(half) for half in Z.split(500_000)]
    one_shot = triangle(Z.double())
    assert relative_difference(stream.factor().R, one_shot) < 1e-9
    assert relative_difference(halves[0].merge(halves[1]).factor().R, one_shot) < 1e-9

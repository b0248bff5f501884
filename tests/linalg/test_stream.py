"""Rows in batches equal rows at once; precision, memory, merging, restarting, bad rows."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from interpress.errors import ArgumentError, DataError, StorageError
from interpress.linalg import FactorStream, RFactor, order_by_pivoting
from interpress.linalg import precision as precision_module
from interpress.linalg.factor import gram, triangle
from interpress.linalg.stream import Route
from interpress.storage import files as storage
from interpress.storage.stream_file import load_stream, save_stream

ROUTES: list[Route] = ["gram", "tsqr"]


def rows(count: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(count, n, generator=torch.Generator().manual_seed(seed))


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def relative(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.matrix_norm(a - b) / torch.linalg.matrix_norm(b))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
def test_streamed_equals_one_shot(route: Route, batch: int) -> None:
    Z = rows(1000, 48)
    stream = FactorStream(48, route=route)
    for piece in Z.split(batch):
        stream.add(piece)
    factor = stream.factor()
    assert factor.rows == stream.rows == 1000
    assert relative(factor.R, triangle(Z.double())) < 1e-12
    assert relative(factor.G, Z.double().T @ Z.double()) < 1e-13
    assert torch.equal(factor.R, factor.R.triu())


@pytest.mark.parametrize("route", ROUTES)
def test_fewer_rows_than_columns(route: Route) -> None:
    Z = rows(5, 20)
    factor = FactorStream(20, route=route).add(Z).factor()
    assert relative(factor.R.T @ factor.R, Z.double().T @ Z.double()) < 1e-12
    assert order_by_pivoting(factor).numerical_rank == 5


@pytest.mark.parametrize("route", ROUTES)
def test_merged_halves_equal_the_whole(route: Route) -> None:
    Z = rows(600, 32)
    whole = FactorStream(32, route=route).add(Z)
    left, right = (FactorStream(32, route=route).add(half) for half in Z.split(300))
    merged = left.merge(right)
    assert (merged.rows, merged.batches) == (600, 2)
    assert relative(merged.factor().R, whole.factor().R) < 1e-12
    assert right.rows == 300  # the one merged in is unchanged
    assert relative(right.factor().R, triangle(Z[300:].double())) < 1e-12


def test_merging_with_an_empty_stream_changes_nothing() -> None:
    Z = rows(50, 8)
    full, empty = FactorStream(8).add(Z), FactorStream(8)
    before = full.factor().R
    assert torch.equal(full.merge(FactorStream(8)).factor().R, before)
    assert torch.equal(empty.merge(full).factor().R, before)
    empty.add(Z)  # and the two no longer share anything
    assert torch.equal(full.factor().R, before)


@pytest.mark.parametrize("route", ROUTES)
def test_saved_and_loaded_goes_on_where_it_stopped(route: Route, tmp_path: Path) -> None:
    Z = rows(90, 16)
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(16, route=route).add(Z[:35]), path)
    resumed = load_stream(path, device=None).add(Z[35:])
    straight = FactorStream(16, route=route).add(Z[:35]).add(Z[35:])
    assert torch.equal(resumed.factor().R, straight.factor().R)
    assert (resumed.rows, resumed.batches, resumed.route) == (90, 2, route)
    save_stream(FactorStream(16), path)
    assert load_stream(path).add(Z).rows == 90
    assert [file.name for file in tmp_path.iterdir()] == ["tap.safetensors"]


@pytest.mark.parametrize("route", ROUTES)
def test_two_processes_merge_into_the_one_process_result(route: Route, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    script = f"""
        import torch
        from interpress.linalg import FactorStream
        Z = torch.randn(600, 32, generator=torch.Generator().manual_seed(0))
        save_stream(FactorStream(32, route={route!r}).add(Z[300:]), {str(path)!r})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    Z = rows(600, 32)
    merged = FactorStream(32, route=route).add(Z[:300]).merge(load_stream(path))
    whole = FactorStream(32, route=route).add(Z)
    assert relative(merged.factor().R, whole.factor().R) < 1e-12
    one, two = (order_by_pivoting(stream.factor()) for stream in (merged, whole))
    assert torch.equal(one.order, two.order)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    with pytest.raises(StorageError, match="is not a file"):
        load_stream(path)
    save_stream(FactorStream(16).add(rows(9, 16)), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(StorageError, match="cut short"):
        load_stream(path)
    path.write_bytes(whole.replace(b'"version":"1"', b'"version":"9"'))
    with pytest.raises(StorageError, match=r"format version 9.*upgrade"):
        load_stream(path)
    path.write_bytes(whole.replace(b'"factor-stream"', b'"factor-cheese"'))
    with pytest.raises(StorageError, match="holds 'factor-cheese'"):
        load_stream(path)
    path.write_bytes(whole.replace(b'"version":"1"', b'"version":"x"'))
    with pytest.raises(StorageError, match="format version x"):
        load_stream(path)
    for tampered in (
        whole.replace(b'"n":"16"', b'"n":"17"'),
        whole.replace(b'"rows":"9"', b'"rows":"8"'),
        whole[:-1] + bytes([whole[-1] ^ 1]),
    ):
        path.write_bytes(tampered)
        with pytest.raises(StorageError, match="was changed after it was written"):
            load_stream(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "17"}, "garbles its total"),
        ({"additions": "-5"}, "garbles its tensors"),
        ({"batches": "-1"}, "does not fit"),
        ({"kind": "float64 tsqr"}, "garbles its route"),
        ({"kind": "float99 gram"}, "garbles 'float99 gram'"),
        ({"pending": torch.zeros(3, 15).double()}, "garbles its pending rows"),
        ({"n": None}, "garbles 'n'"),
        ({"dtype": "float99"}, "garbles"),
        ({"route": "scenic"}, "garbles route='scenic'"),
        ({"rows": "0"}, "counts 0 rows but does not fit"),
        ({"total": torch.zeros(3, 16).double()}, "garbles its total"),
        ({"total": torch.zeros(16, 16)}, "garbles its total"),
    ],
)
def test_files_that_contradict_themselves(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(16).add(rows(9, 16)), path)
    tensors, fields = storage.load_tensors(path, "factor-stream")
    for name, value in change.items():
        target = tensors if isinstance(value, Tensor) else fields
        target.pop(name)
        if value is not None:
            target[name] = value
    storage.save_tensors(path, "factor-stream", tensors, fields)
    with pytest.raises(StorageError, match=message):
        load_stream(path)


def test_saving_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    real.touch()
    real.chmod(0o600)
    link.symlink_to(real)
    save_stream(FactorStream(4).add(rows(9, 4)), link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert load_stream(real).rows == 9


def test_a_stream_that_has_not_begun_keeps_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(4, route="tsqr", dtype=torch.float32), path)
    resumed = load_stream(path).add(rows(9, 4))
    assert (resumed.route, resumed.factor().floor) == ("tsqr", 8 * precision_module.EPS32)
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def test_unwritable_target_keeps_what_was_there(tmp_path: Path) -> None:
    stream = FactorStream(4).add(rows(3, 4))
    with pytest.raises(StorageError, match="Choose a folder that exists"):
        stream.save(tmp_path / "missing" / "tap.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="nothing was changed"):
        stream.save(tmp_path / "folder")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype(dtype: torch.dtype) -> None:
    Z = rows(100, 12).to(dtype)
    stream = FactorStream(12).add(Z)
    assert stream.route == ("tsqr" if dtype == torch.float64 else "gram")
    assert relative(stream.factor().R, triangle(Z.double())) < 1e-13


def test_float8_rows() -> None:
    Z = rows(100, 12).to(torch.float8_e4m3fn)
    assert relative(FactorStream(12).add(Z).factor().R, triangle(Z.double())) < 1e-12


@pytest.mark.parametrize("route", ROUTES)
def test_thousands_of_batches_of_one_row(route: Route) -> None:
    """Rounding must not grow into independent columns, nor out of the certificate."""
    torch.manual_seed(0)
    row = torch.rand(1, 8) + 0.1
    stream = FactorStream(8, route=route, dtype=torch.float32 if route == "tsqr" else None)
    for _ in range(4000):
        stream.add(row)
    for _ in range(20):
        stream.add(row.expand(5000, 8))
    ordering = order_by_pivoting(stream.factor())
    assert ordering.numerical_rank == 1
    found = ordering.for_accuracy(1e-4)
    error = row.double() - row.double()[:, found.kept] @ found.T
    assert float(error.norm()) <= 1e-4 * float(row.norm())


@pytest.mark.parametrize("dim", [1, -3])
def test_any_channel_dimension_in_small_pieces(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(6, 5, 9, 7)
    expected = images.movedim(1, -1).reshape(-1, 5).double()
    stream = FactorStream(5).add(images, dim=dim)
    assert stream.rows == 6 * 9 * 7
    assert relative(stream.factor().R, triangle(expected)) < 1e-12
    from interpress.linalg.stream import _row_chunks

    for limit in (1, 4, 50, 100, 1000):
        pieces = list(_row_chunks(images.movedim(1, -1), limit))
        assert max(map(len, pieces)) <= limit
        assert torch.equal(torch.cat(pieces).double(), expected)


def smallest_resolved(factor: RFactor, true: Tensor) -> float:
    """The smallest |r_kk / r_11| that is still right to 10 %."""
    diagonal = order_by_pivoting(factor).diagonal
    right = ((diagonal - true).abs() <= 0.1 * true).long().cumprod(0).bool()
    return float((true / true[0])[right].min())


def test_precision_reaches_the_noise_floor_of_float32() -> None:
    """The data's own rounding is 6e-8: a float64 Gram comes close, a float32 one does not."""
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
    assert smallest_resolved(naive, true) > 5e-4  # what the float64 buys


def test_slow_float64_devices_get_tsqr_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpress.linalg.stream.has_fast_float64", lambda device: False)
    stream = FactorStream(6).add(rows(40, 6))
    assert stream.route == "tsqr"
    assert stream._sum is not None
    assert stream._sum.kind == "float32 tsqr"
    assert stream.factor().floor == 8 * precision_module.EPS32


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_bad_rows_are_named_and_leave_no_trace(route: Route, bad: float) -> None:
    stream = FactorStream(4, route=route).add(rows(10, 4))
    before = stream.factor().R
    poisoned = rows(20, 4)
    poisoned[7, 2] = poisoned[7, 3] = poisoned[11, 0] = bad
    with pytest.raises(DataError) as caught:
        stream.add(poisoned)
    message = str(caught.value)
    assert "batch 2: 2 of its 20 rows hold NaN or Inf" in message
    assert f"first: row 7, channel 2 is {bad}" in message
    assert "10 rows added before are kept" in message
    assert torch.equal(stream.factor().R, before)
    assert (stream.rows, stream.batches) == (10, 1)


@pytest.mark.parametrize("route", ROUTES)
def test_an_interrupt_leaves_no_trace(route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    import interpress.linalg.stream as module

    stream = FactorStream(4, route=route).add(rows(10, 4))
    before = stream.factor().R

    def interrupted(batch: Tensor, limit: int):
        yield batch[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_row_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.add(rows(20, 4))
    assert torch.equal(stream.factor().R, before)
    assert stream.rows == 10


def test_the_batch_may_change_after_it_was_added() -> None:
    """Rows that wait for the next QR must not be views of the caller's buffer."""
    batch = rows(3, 8).double()
    kept = batch.clone()
    stream = FactorStream(8).add(batch)
    batch.zero_()
    assert relative(stream.factor().G, kept.T @ kept) < 1e-13


def test_float64_beyond_its_squares_is_refused_with_the_remedy() -> None:
    for route in ROUTES:
        stream = FactorStream(3, route=route).add(rows(9, 3))
        with pytest.raises(DataError, match=r"magnitude of .*e\+1[67].* 9 rows .* Scale the data"):
            stream.add(1e170 * rows(9, 3).double())
        stream.add(1e-170 * rows(9, 3).double())  # harmless beside ordinary rows
        assert relative(stream.factor().G, rows(9, 3).double().T @ rows(9, 3).double()) < 1e-13
        with pytest.raises(DataError, match=r"too small to square.*scale the data up"):
            FactorStream(3, route=route).add(1e-170 * rows(9, 3).double()).factor()
    with pytest.raises(DataError, match="too large to square in the arithmetic of this stream"):
        FactorStream(3, dtype=torch.float32).add(1e39 * rows(9, 3).double())
    for scale in (1e-30, 1e30):
        tiny = FactorStream(3, dtype=torch.float32).add(scale * rows(9, 3)).factor()
        assert relative(tiny.R / scale, triangle(rows(9, 3).double())) < 1e-5
    with pytest.raises(DataError, match="too small to square"):
        FactorStream(3, dtype=torch.float32).add(1e-60 * rows(9, 3).double()).factor()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FactorStream(0), "n=0 columns; a stream needs a whole number of at least 1"),
        (lambda: FactorStream(2.5), "n=2.5 columns"),
        (lambda: FactorStream(3, route="qr"), "route='qr'; choose one of auto, gram, tsqr"),
        (lambda: FactorStream(3, dtype=torch.float16), "torch.float32 or torch.float64"),
        (lambda: FactorStream(3, route="gram", dtype=torch.float32), "use route='tsqr'"),
        (lambda: FactorStream(3).factor(), "no rows were added; call add"),
        (lambda: FactorStream(3).add([[1.0, 2.0, 3.0]]), "got a list; pass a torch.Tensor"),
        (lambda: FactorStream(3).add(torch.ones(2, 3).long()), "int64; convert them to a float"),
        (lambda: FactorStream(3).add(torch.ones(0, 3)), r"empty batch of shape \(0, 3\)"),
        (lambda: FactorStream(3).add(torch.ones(2, 4)), "has 4 channels, this stream has 3"),
        (
            lambda: FactorStream(3).add(torch.ones(2, 3), dim=2),
            r"dim=2 of a tensor of shape \(2, 3\)",
        ),
        (lambda: FactorStream(3).add(torch.tensor(1.0)), "dim=-1 of a tensor"),
        (lambda: FactorStream(3).add(torch.ones(2, 3), dim=None), "dim=None of a tensor"),
        (lambda: FactorStream(3).add(torch.ones(2, 3, device="meta")), "on meta; pass a dense one"),
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
        (lambda: RFactor(rows=3, floor=0.0), "exactly one of gram= and root="),
    ],
)
def test_bad_arguments_name_the_value_and_the_remedy(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


MILLION = """
    import json, torch
    from interpress.linalg import FactorStream

    def status(field):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024

    torch.manual_seed(0)
    batch = torch.empty(4096, 512)
    # the BLAS library's own buffers and code pages
    square = torch.mm(batch.double().T, batch.double())
    torch.linalg.eigh(square), torch.linalg.qr(square)
    del square
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # restart the peak
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
@pytest.mark.parametrize(("route", "count"), [("gram", 1_000_000), ("tsqr", 100_000)])
def test_memory_does_not_grow_with_the_rows(route: str, count: int) -> None:
    script = textwrap.dedent(MILLION.format(route=route, rows=count))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    assert report["rows"] == count
    assert report["extra"] < 100, report  # megabytes


@pytest.mark.slow
def test_a_million_rows_equal_the_one_shot_factor() -> None:
    Z = rows(1_000_000, 512)
    stream = FactorStream(512)
    for piece in Z.split(4096):
        stream.add(piece)
    halves = [FactorStream(512).add(half) for half in Z.split(500_000)]
    one_shot = triangle(Z.double())
    assert relative(stream.factor().R, one_shot) < 1e-9
    assert relative(halves[0].merge(halves[1]).factor().R, one_shot) < 1e-9

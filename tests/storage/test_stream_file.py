"""Streams in files: continued, merged across processes, and checked when they are loaded."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from interpress.errors import StorageError
from interpress.files.tensor_file import load_tensors, save_tensors
from interpress.linalg import FactorStream, order_by_pivoting
from interpress.linalg.precision import EPS32
from interpress.linalg.stream import Route
from interpress.storage.stream_file import load_stream, save_stream

ROUTES: list[Route] = ["gram", "tsqr"]


def rows(count: int, n: int) -> Tensor:
    return torch.randn(count, n, generator=torch.Generator().manual_seed(0))


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@pytest.mark.parametrize("route", ROUTES)
def test_a_loaded_stream_continues_exactly(route: Route, tmp_path: Path) -> None:
    Z = rows(90, 16)
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(16, route=route).add(Z[:35]), path)
    resumed = load_stream(path, device=None).add(Z[35:])
    uninterrupted = FactorStream(16, route=route).add(Z[:35]).add(Z[35:])
    assert torch.equal(resumed.factor().R, uninterrupted.factor().R)
    assert (resumed.rows, resumed.batches, resumed.route) == (90, 2, route)
    save_stream(FactorStream(16), path)
    assert load_stream(path).add(Z).rows == 90
    assert [file.name for file in tmp_path.iterdir()] == ["tap.safetensors"]


def test_an_empty_stream_keeps_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(4, route="tsqr", dtype=torch.float32), path)
    resumed = load_stream(path).add(rows(9, 4))
    assert (resumed.route, resumed.factor().floor) == ("tsqr", 8 * EPS32)
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


@pytest.mark.parametrize("route", ROUTES)
def test_streams_of_two_processes_merge_to_the_stream_of_one(route: Route, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    script = f"""
        import torch
        from interpress.linalg import FactorStream
        from interpress.storage.stream_file import save_stream
        Z = torch.randn(600, 32, generator=torch.Generator().manual_seed(0))
        save_stream(FactorStream(32, route={route!r}).add(Z[300:]), {str(path)!r})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    Z = rows(600, 32)
    merged = FactorStream(32, route=route).add(Z[:300]).merge(load_stream(path)).factor()
    whole = FactorStream(32, route=route).add(Z).factor()
    difference = torch.linalg.matrix_norm(merged.R - whole.R)
    assert float(difference) < 1e-12 * float(torch.linalg.matrix_norm(whole.R))
    assert torch.equal(order_by_pivoting(merged).order, order_by_pivoting(whole).order)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    with pytest.raises(StorageError, match=path.name):
        load_stream(path)
    save_stream(FactorStream(16).add(rows(9, 16)), path)
    intact = path.read_bytes()
    path.write_bytes(intact[:-40])
    with pytest.raises(StorageError, match="not a readable safetensors file"):
        load_stream(path)
    path.write_bytes(intact.replace(b'"version":"1"', b'"version":"9"'))
    with pytest.raises(StorageError, match=r"format version 9.*upgrade"):
        load_stream(path)
    path.write_bytes(intact.replace(b'"factor-stream"', b'"factor-cheese"'))
    with pytest.raises(StorageError, match="factor-cheese"):
        load_stream(path)
    path.write_bytes(intact.replace(b'"version":"1"', b'"version":"x"'))
    with pytest.raises(StorageError, match="format version x"):
        load_stream(path)
    for tampered in (
        intact.replace(b'"n":"16"', b'"n":"17"'),
        intact.replace(b'"rows":"9"', b'"rows":"8"'),
        intact[:-1] + bytes([intact[-1] ^ 1]),
    ):
        path.write_bytes(tampered)
        with pytest.raises(StorageError, match="changed after it was written"):
            load_stream(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "17"}, r"invalid entry: total of shape \(16, 16\)"),
        ({"additions": "-5"}, "invalid entry: additions=-5"),
        ({"batches": "-1"}, "contradicts itself: it counts 9 rows in -1 batches"),
        ({"kind": "float64 tsqr"}, "invalid entry: route='gram' with kind='float64 tsqr'"),
        ({"kind": "float99 gram"}, "invalid entry: 'float99 gram'"),
        ({"pending": torch.zeros(3, 15).double()}, r"invalid entry: pending of shape \(3, 15\)"),
        ({"n": None}, "missing or invalid entry: 'n'"),
        ({"dtype": "float99"}, "invalid entry: .*float99"),
        ({"route": "scenic"}, "invalid entry: route='scenic'"),
        ({"rows": "0"}, "contradicts itself: it counts 0 rows in 1 batches"),
        ({"total": torch.zeros(3, 16).double()}, r"invalid entry: total of shape \(3, 16\)"),
        ({"total": torch.zeros(16, 16)}, "invalid entry: total .* torch.float32"),
    ],
)
def test_inconsistent_files_are_refused(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tap.safetensors"
    save_stream(FactorStream(16).add(rows(9, 16)), path)
    tensors, fields = load_tensors(path, "factor-stream")
    for name, value in change.items():
        target = tensors if isinstance(value, Tensor) else fields
        target.pop(name)
        if value is not None:
            target[name] = value
    save_tensors(path, "factor-stream", tensors, fields)
    with pytest.raises(StorageError, match=message) as caught:
        load_stream(path)
    assert str(caught.value).endswith("save the stream again")


def test_saving_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    real.touch()
    real.chmod(0o600)
    link.symlink_to(real)
    save_stream(FactorStream(4).add(rows(9, 4)), link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert load_stream(real).rows == 9


def test_a_failed_save_leaves_no_file(tmp_path: Path) -> None:
    stream = FactorStream(4).add(rows(3, 4))
    with pytest.raises(StorageError, match="cannot write"):
        save_stream(stream, tmp_path / "missing" / "tap.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="cannot write"):
        save_stream(stream, tmp_path / "folder")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]

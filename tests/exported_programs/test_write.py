"""Smaller networks as exported programs and as files."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from tests.exported_programs.networks import Convolutional, Transformer, exported, saved
from torch import nn

from interpress import ArgumentError, StorageError, compress, load, read_exported
from interpress.storage.result_folder import read_plan

X = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Convolutional().eval()


@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
@pytest.mark.parametrize("free", [True, False])
def test_a_file_becomes_a_smaller_file(model: nn.Module, tmp_path: Path, free: bool) -> None:
    path = saved(exported(model, X[:4], free=free), tmp_path, note="kept")
    before = path.read_bytes()
    result = compress(path, X, flops=0.6)
    assert dict(result.widths) == dict(compress(model, X, flops=0.6).widths)
    smaller = tmp_path / "smaller.pt2"
    result.save_exported(smaller)
    texts = {"note": ""}
    program = torch.export.load(smaller, extra_files=texts)
    assert texts == {"note": "kept"}
    assert torch.allclose(program.module()(X[:4])["scores"], result.model(X[:4])["scores"])
    assert {n: p.shape for n, p in program.named_parameters()} == {
        n: p.shape for n, p in result.model.named_parameters()
    }
    assert bool(program.range_constraints) == free
    assert smaller.stat().st_size < path.stat().st_size
    assert path.read_bytes() == before
    with pytest.raises(StorageError, match="overwrite=True"):
        result.save_exported(smaller)
    result.save_exported(smaller, overwrite=True)
    with pytest.raises(StorageError, match="not a folder"):
        result.save_exported(tmp_path / "missing" / "x.pt2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.pt2", "smaller.pt2"]


@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_a_result_folder_has_the_program_and_can_be_loaded(
    model: nn.Module, tmp_path: Path
) -> None:
    path = saved(exported(model, X[:4]), tmp_path)
    result = compress(path, X, flops=0.6)
    result.save(tmp_path / "half", report=True)
    assert sorted(p.name for p in (tmp_path / "half").iterdir()) == [
        "model.pt2", "plan.json", "report.html", "weights.safetensors",
    ]  # fmt: skip
    for original in (path, read_exported(path), torch.export.load(path)):
        loaded = load(tmp_path / "half", original)
        assert torch.equal(loaded(X)["scores"], result.model(X)["scores"])
    assert read_plan(tmp_path / "half")["flops"][1] == result.after.flops
    program = torch.export.load(tmp_path / "half" / "model.pt2")
    assert torch.allclose(program.module()(X)["scores"], result.model(X)["scores"])
    result.save(tmp_path / "half", overwrite=True)


def test_a_smaller_program_can_be_compressed_again() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 7, 16)
    first = compress(exported(Transformer(), x[:3]), x, flops=0.8)
    second = compress(first.exported_program(), x, flops=0.8)
    assert second.after.flops < first.after.flops
    assert second.exported_program().module()(x[:2]).shape == (2, 5)


def test_other_networks_have_no_program(model: nn.Module) -> None:
    result = compress(model, X, flops=0.8)
    with pytest.raises(ArgumentError, match=r"torch\.export\.export"):
        result.exported_program()


@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_the_program_itself_is_not_changed(model: nn.Module) -> None:
    program = exported(model, X[:4])
    code, state = program.graph_module.code, {n: p.clone() for n, p in program.state_dict.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        compress(program, X, flops=0.6).exported_program()
    assert program.graph_module.code == code
    assert all(torch.equal(program.state_dict[name], value) for name, value in state.items())

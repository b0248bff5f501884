"""The commands take `.pt2` files, and write one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Shell, small

import interpress


@pytest.fixture
def file(shell: Shell) -> Path:
    """Write a program of the network in the user's folder, for any batch size."""
    free = ({0: torch.export.Dim.AUTO},)
    x = torch.randn(3, 3, 8, 8)
    torch.export.save(torch.export.export(small().eval(), (x,), dynamic_shapes=free), "model.pt2")
    return Path("model.pt2")


def test_a_program_is_inspected_compressed_and_evaluated(shell: Shell, file: Path) -> None:
    assert shell("inspect", "model.pt2", "--shape", "3,8,8", "--json") == 0, shell.err
    assert [space["size"] for space in json.loads(shell.out)["spaces"]] == [16, 24, 4]
    command = ("compress", "model.pt2", "--data", "x.npy", "--flops", "0.5", "--out", "half")
    assert shell(*command) == 0, shell.err
    assert sorted(path.name for path in Path("half").iterdir()) == [
        "model.pt2", "plan.json", "report.html", "weights.safetensors",
    ]  # fmt: skip
    smaller = torch.export.load("half/model.pt2").module()
    loaded = interpress.load("half", file)
    x = torch.randn(5, 3, 8, 8)
    assert torch.allclose(smaller(x), loaded(x), atol=1e-6)
    assert shell(*command) == 2
    assert "--force" in shell.err
    assert shell(*command, "--force") == 0, shell.err
    judged = ("evaluate", "model.pt2", "--data", "x.npy", "--json")
    assert shell(*judged, "--compressed", "half") == 0, shell.err
    first = json.loads(shell.out)["agreement"]
    assert shell(*judged, "--other", "half/model.pt2") == 0, shell.err
    assert json.loads(shell.out)["agreement"] == first


def test_options_of_a_function_are_refused(shell: Shell, file: Path) -> None:
    assert shell("inspect", "model.pt2", "--weights", "w.pt", "--shape", "3,8,8") == 2
    assert "for a function that builds the network" in shell.err


def test_a_file_that_is_none_is_named(shell: Shell) -> None:
    Path("bad.pt2").write_bytes(b"no archive")
    assert shell("inspect", "bad.pt2", "--shape", "3,8,8") == 2
    assert "bad.pt2 cannot be read as an exported program" in shell.err
    assert shell("inspect", "missing.pt2", "--shape", "3,8,8") == 2
    assert "missing.pt2 is not a file" in shell.err

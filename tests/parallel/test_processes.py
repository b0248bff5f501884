"""Several processes give the result of one, and a failure in one ends all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from interpress import InterpressError
from interpress.parallel.processes import Processes, check_same_widths, process_group

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    texts = {name: str(value) for name, value in variables.items()}
    return os.environ | texts | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}


def run(command: list[str], size: int) -> list[str]:
    """Run a command in several processes, and return what each printed."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment(rank, size, port), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [printed for printed, _ in outputs]


def found(task: str, size: int, folder: Path) -> list[dict[str, Any]]:
    """Return what every process found in a task of `tests.parallel.worker`."""
    folder.mkdir(exist_ok=True)
    run(["-m", "tests.parallel.worker", task, str(folder)], size)
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def assert_same(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    assert one["widths"] == other["widths"]
    for name, weight in one["weights"].items():
        torch.testing.assert_close(weight, other["weights"][name], rtol=0, atol=tolerance)


def test_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    (alone,) = found("whole", 1, tmp_path / "one")
    first, second = found("whole", 2, tmp_path / "two")
    assert_same(first, alone, 1e-6)
    assert_same(second, first, 0.0)
    for process in found("shards", 2, tmp_path / "shards"):
        assert_same(process, first, 0.0)


def test_two_processes_go_block_by_block_together(tmp_path: Path) -> None:
    (alone,) = found("by_block", 1, tmp_path / "one")
    first, second = found("by_block", 2, tmp_path / "two")
    assert_same(first, alone, 1e-6)
    assert_same(second, first, 0.0)


def test_two_processes_distil_one_network(tmp_path: Path) -> None:
    first, second = found("distils", 2, tmp_path)
    assert_same(second, first, 0.0)
    assert first["kept"]


@pytest.mark.slow
def test_the_number_of_processes_makes_no_difference_block_by_block(tmp_path: Path) -> None:
    first, *_ = found("by_block", 2, tmp_path / "two")
    for name, task in (("four", "by_block"), ("again", "by_block"), ("kept", "by_block_kept")):
        for process in found(task, 4, tmp_path / name):
            assert_same(process, first, 0.0 if task == "by_block" else 1e-6)


@pytest.mark.slow
def test_the_number_of_processes_makes_no_difference(tmp_path: Path) -> None:
    first, *_ = found("whole", 2, tmp_path / "two")
    for name, task in (("four", "whole"), ("again", "whole"), ("uneven", "shards")):
        for process in found(task, 4, tmp_path / name):
            assert_same(process, first, 0.0)


def test_a_failure_in_one_process_ends_all_with_its_message(tmp_path: Path) -> None:
    first, second = found("fails", 2, tmp_path)
    data, budget = second["messages"]  # the third call succeeds
    assert data.startswith("the calibration data are a str; give a tensor")
    assert budget.startswith("width=7.0 is out of range")
    assert first["messages"] == [f"process 1 failed: ArgumentError: {m}" for m in (data, budget)]


def test_the_first_process_writes(tmp_path: Path) -> None:
    found("saves", 2, tmp_path)
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == [
        "plan.json", "weights.safetensors",
    ]  # fmt: skip


NETS = """
from torch import nn

def small():
    layers = nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 4)
    return nn.Sequential(*layers)
"""


def test_the_command_line_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    np.save(tmp_path / "x.npy", torch.randn(200, 8).numpy())
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 4)
    )
    save_file(model.state_dict(), tmp_path / "small.safetensors")
    first, second = run(
        [
            "-m", "interpress", "compress", f"{tmp_path}/nets.py:small",
            "--weights", f"{tmp_path}/small.safetensors", "--data", f"{tmp_path}/x.npy",
            "--width", "0.9", "--out", f"{tmp_path}/out",
        ],
        2,
    )  # fmt: skip
    assert "Saved to" in first
    assert second == ""
    assert (tmp_path / "out" / "weights.safetensors").is_file()


@pytest.mark.slow
def test_two_processes_calibrate_faster_than_one(tmp_path: Path) -> None:
    ratios = []
    for attempt in range(3):
        (alone,) = found("times", 1, tmp_path / f"one{attempt}")
        pair = found("times", 2, tmp_path / f"two{attempt}")
        ratios.append(alone["seconds"] / max(process["seconds"] for process in pair))
    assert max(ratios) >= 1.6


def test_one_process_alone_exchanges_nothing() -> None:
    with process_group() as processes:
        assert (processes.rank, processes.size, processes.is_first) == (0, 1, True)
    alone = Processes()
    assert alone.gathered("value") == ["value"]
    weight = torch.ones(2)
    alone.share([weight])
    assert weight.tolist() == [1, 1]
    with pytest.raises(KeyError), alone.together():
        raise KeyError


def test_different_widths_are_refused() -> None:
    check_same_widths([{"a": 1}, {"a": 1}])
    with pytest.raises(InterpressError, match="processes chose different widths"):
        check_same_widths([{"a": 1}, {"a": 2}])

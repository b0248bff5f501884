"""A run that was ended goes on from the last finished block, to the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pipeline.test_streaming import IMAGES, TEXTS, chain, llama, resnet
from torch import Tensor, nn

import interpress
from interpress import InterpressError, Method, StorageError
from interpress.files.checkpoint import Checkpoint

CASES = {"chain": (chain, IMAGES), "resnet": (resnet, IMAGES), "llama": (llama, TEXTS)}
pytestmark = pytest.mark.filterwarnings(
    "ignore::interpress.RuinedWarning", "ignore::interpress.FewExamplesWarning"
)


def compress(name: str, folder: Path, **options: Any) -> dict[str, Tensor]:
    build, data = CASES[name]
    options = {"flops": 0.6, "checkpoint": folder, "progress": False, **options}
    return interpress.compress(build(), options.pop("data", data), **options).model.state_dict()


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


class Ended(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", ["chain", "resnet"])
def test_a_run_that_ends_after_any_part_goes_on_from_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, names = Checkpoint.save, list[str]()

    def counted(checkpoint: Checkpoint, part: str, *args: Any) -> None:
        save(checkpoint, part, *args)
        names.append(part)

    monkeypatch.setattr(Checkpoint, "save", counted)
    expected = compress(name, tmp_path / "whole")
    total = len(names)
    assert_same(compress(name, tmp_path / "whole"), expected)  # from what is finished
    for count in sorted({1, total // 4, total // 2, 3 * total // 4, total - 1}):
        left = [count]

        def ending(checkpoint: Checkpoint, part: str, *args: Any, left: list[int] = left) -> None:
            save(checkpoint, part, *args)
            left[0] -= 1
            if left[0] == 0:
                raise Ended

        folder = tmp_path / str(count)
        monkeypatch.setattr(Checkpoint, "save", ending)
        with pytest.raises(Ended):
            compress(name, folder)
        names.clear()
        monkeypatch.setattr(Checkpoint, "save", counted)
        assert_same(compress(name, folder), expected)
        assert len(names) <= total - count + 1  # at most the last block is done again


def test_a_refit_that_is_undone_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interpress.network import build_by_block

    monkeypatch.setattr(build_by_block, "held_out_loss", lambda agreement: 0.0)  # never lower
    expected = compress("chain", tmp_path / "whole")
    assert_same(compress("chain", tmp_path / "whole"), expected)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("set of options", {"flops": 0.7}),
        ("set of options", {"method": Method(refit=False)}),
        ("set of options", {"seed": 1}),
        ("set of options", {"exclude": ["0"]}),
        ("data", {"data": IMAGES + 1}),
    ],
)
def test_a_folder_of_another_run_is_refused(
    what: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    compress("chain", tmp_path / "c")
    with pytest.raises(StorageError, match=f"a run with another {what}"):
        compress("chain", tmp_path / "c", **changes)


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    compress("chain", tmp_path / "c")
    other = chain()
    with torch.no_grad():
        other.get_submodule("0").bias.add_(1e-3)  # type: ignore[operator, union-attr]
    with pytest.raises(StorageError, match="a run with another model"):
        interpress.compress(other, IMAGES, flops=0.6, checkpoint=tmp_path / "c", progress=False)


@pytest.mark.parametrize("checkpoint", ["", 3, True])
def test_a_checkpoint_is_a_path(checkpoint: Any) -> None:
    with pytest.raises(InterpressError, match=r"checkpoint=.*; give the path of a folder"):
        interpress.compress(nn.Linear(2, 2), IMAGES, flops=0.5, checkpoint=checkpoint)


RUN = """
import sys, warnings
from pathlib import Path
import torch
from tests.pipeline.test_checkpoints import compress
warnings.simplefilter("ignore")
torch.save(compress(sys.argv[1], Path(sys.argv[2])), sys.argv[3])
"""


def start(name: str, folder: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, name, str(folder), str(out)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)


def kill_and_go_on(name: str, folder: Path, seconds: float, expected: dict[str, Tensor]) -> None:
    """Kill a run some seconds after its first part is there; then let it finish."""
    process = start(name, folder, folder.with_suffix(".pt"))
    while not (folder / "run.safetensors").is_file() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = start(name, folder, folder.with_suffix(".pt"))
    assert again.wait(timeout=300) == 0
    assert_same(torch.load(folder.with_suffix(".pt")), expected)


def whole(name: str, folder: Path) -> tuple[dict[str, Tensor], float]:
    """Return the weights of a run that is left alone, and its seconds after the first part."""
    process = start(name, folder, folder.with_suffix(".pt"))
    while not (folder / "run.safetensors").is_file():
        time.sleep(0.01)
    begun = time.perf_counter()
    assert process.wait(timeout=300) == 0
    return torch.load(folder.with_suffix(".pt")), time.perf_counter() - begun


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    expected, seconds = whole("resnet", tmp_path / "whole")
    kill_and_go_on("resnet", tmp_path / "killed", 0.4 * seconds, expected)


@pytest.mark.slow
def test_ten_killed_runs_go_on_to_the_same_bits(tmp_path: Path) -> None:
    draw = random.Random(0)
    expected, seconds = whole("llama", tmp_path / "whole")
    for number in range(10):
        moment = draw.uniform(0, seconds)
        kill_and_go_on("llama", tmp_path / f"killed{number}", moment, expected)

"""Edited and re-signed files, impossible paths, and several processes that save at once."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import interpress
from interpress import ArgumentError, StorageError, demo
from interpress.files.tensor_file import load_tensors, save_tensors
from interpress.storage.example_description import random_example
from interpress.storage.result_folder import PLAN, WEIGHTS


@pytest.fixture(scope="module")
def result() -> interpress.Result:
    data = demo.load_digits().calibration[:80]
    return interpress.compress(demo.network(), data, flops=0.6, progress=False)


@pytest.fixture
def folder(result: interpress.Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "half")
    return tmp_path / "half"


def resign(folder: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], Any]) -> None:
    """Change the plan and the tensors, and sign them as `save` does."""
    record = json.loads((folder / PLAN).read_text())
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = change(record, tensors) or json.dumps(record)
    (folder / PLAN).write_text(text)
    signature = hashlib.sha256(text.encode()).hexdigest()
    save_tensors(folder / WEIGHTS, "compressed-network", tensors, {"plan": signature})


def _drop(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    del tensors["classifier.weight"]


def _grow(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors["classifier.bias"] = torch.zeros(11)


def _nan(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors["classifier.bias"][0] = torch.nan


def _set_method(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    record["sizes"].append(["classifier", "forward", 3])


def _set_missing(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    record["sizes"].append(["classifier", "nonsense", 3])


def _set_flag(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    record["sizes"].append(["classifier", "training", 1])


def _nest(record: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    return "[" * 100_000 + "]" * 100_000


def _infinite(record: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    return json.dumps({**record, "version": float("inf")})


def _other_weights(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors["classifier.weight"].mul_(-1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop, "lacks the tensor 'classifier.weight'"),
        (_grow, "no dim can grow"),
        (_nan, "holds NaN"),
        (_set_method, "lacks or garbles 'forward'"),
        (_set_missing, "lacks or garbles 'nonsense'"),
        (_set_flag, "only sizes can be set"),
        (_nest, "not a readable plan"),
        (_infinite, "not a readable plan"),
        (_other_weights, "gives other outputs than the saved one"),
    ],
)
def test_an_edited_and_signed_result_is_refused(
    folder: Path, change: Callable[..., Any], message: str
) -> None:
    resign(folder, change)
    with pytest.raises(StorageError, match=message):
        interpress.load(folder, demo.network())


def test_a_signed_result_without_changes_loads(folder: Path, result: interpress.Result) -> None:
    resign(folder, lambda record, tensors: None)
    loaded = interpress.load(folder, demo.network())
    images = demo.load_digits().test[0][:50]
    assert torch.equal(loaded(images), result.model.eval()(images))


def test_loaded_tensors_are_at_aligned_addresses(tmp_path: Path) -> None:
    path, odd = tmp_path / "odd.safetensors", {f"t{n}": torch.randn(n) for n in range(1, 30)}
    save_tensors(path, "thing", odd, {})
    with safe_open(path, framework="pt") as file:  # as they lie in the file
        mapped = [file.get_tensor(name) for name in odd]
        assert any(tensor.data_ptr() % 64 for tensor in mapped)
    tensors, _ = load_tensors(path, "thing")
    for name, tensor in tensors.items():
        assert tensor.data_ptr() % 64 == 0
        assert torch.equal(tensor, odd[name])


def test_a_loaded_network_has_aligned_weights(folder: Path) -> None:
    loaded = interpress.load(folder, demo.network())
    assert all(tensor.data_ptr() % 64 == 0 for tensor in loaded.state_dict().values())


class Hidden(nn.Module):
    """Keeps a layer in a plain list, which no state dict and no parameter list shows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 24), nn.Linear(24, 4)
        self.layers = [nn.Linear(4, 4)]

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](self.last(self.first(x).relu()))


def test_a_network_that_is_not_the_saved_one_is_noticed(tmp_path: Path) -> None:
    result = interpress.compress(Hidden(), torch.randn(100, 8), flops=0.6, progress=False)
    result.save(tmp_path / "hidden")
    with pytest.raises(StorageError, match="a module in a plain list"):
        interpress.load(tmp_path / "hidden", Hidden())


class Caches(nn.Module):
    """Counts its calls and computes a factor from a width on the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 24), nn.Linear(24, 4)
        self.calls, self.cache = 0, dict[str, float]()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = self.first(x).relu()
        return self.last(hidden) * self.cache.setdefault("scale", hidden.shape[-1] ** -0.5)


def test_a_value_cached_on_the_first_call_is_noticed(tmp_path: Path) -> None:
    data = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ArgumentError, match="its surgery cannot be proved"):
        interpress.compress(Caches(), data, flops=0.6, progress=False)
    called = Caches()
    called(data[:2])
    result = interpress.compress(called, data, flops=0.6, progress=False)
    result.save(tmp_path / "cached")
    record = json.loads((tmp_path / "cached" / PLAN).read_text())
    assert {attribute for _, attribute, _ in record["sizes"]} == {"in_features", "out_features"}
    with pytest.raises(StorageError, match="a value cached on the first call"):
        interpress.load(tmp_path / "cached", Caches())


@pytest.mark.parametrize("path", ["half\0full", "x" * 5000])
def test_impossible_paths_are_refused(result: interpress.Result, path: str) -> None:
    for action in (
        lambda: result.save(path),
        lambda: result.report(path),
        lambda: interpress.load(path, demo.network()),
        lambda: interpress.Analysis.load(path, demo.network()),
    ):
        with pytest.raises(StorageError):
            action()


def test_a_huge_example_is_not_allocated() -> None:
    leaf = {"shape": [10**6, 10**6], "dtype": "float32", "range": [0.0, 1.0]}
    with pytest.raises(ValueError, match="an example of float32"):
        random_example({"args": [leaf], "kwargs": {}}, torch.device("cpu"))


def _save_often(folder: str, weights: dict[str, Tensor]) -> None:
    from interpress.files.folder import move_into_place

    for number in range(30):
        temporary = Path(folder).parent / f".{multiprocessing.current_process().pid}-{number}.tmp"
        temporary.mkdir()
        (temporary / PLAN).write_text("{}")
        move_into_place(temporary, Path(folder))


def test_processes_that_save_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    target = tmp_path / "half"
    processes = [context.Process(target=_save_often, args=(str(target), {})) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["half"]
    assert [path.name for path in target.iterdir()] == [PLAN]

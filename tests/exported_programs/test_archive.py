"""Files are read without running anything that they contain."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exported_programs.networks import Convolutional, exported, saved
from torch import nn

from interpress import StorageError, read_exported
from interpress.exported_programs.archive import load_program

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
Change = Callable[[dict[str, bytes]], None]


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(exported(Convolutional(), torch.randn(4, 3, 4, 4)), tmp_path, note="of a test")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a folder that exists as soon as something in an archive was run."""
    return tmp_path / "was-run"


def edit(file: Path, change: Change) -> Path:
    """Change the members of an archive, by their names below its first folder."""
    with zipfile.ZipFile(file) as archive:
        members = {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}
    change(members)
    edited = file.with_name("edited.pt2")
    with zipfile.ZipFile(edited, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"model/{name}", content)
    return edited


def edit_json(file: Path, member: str, change: Callable[[Any], None]) -> Path:
    def changed(members: dict[str, bytes]) -> None:
        content = json.loads(members[member])
        change(content)
        members[member] = json.dumps(content).encode()

    return edit(file, changed)


def test_program_and_texts_are_read(file: Path) -> None:
    program, extra = load_program(file)
    x = torch.randn(2, 3, 4, 4)
    expected = torch.export.load(file).module()(x)["scores"]
    assert torch.equal(program.module(check_guards=False)(x)["scores"], expected)
    assert extra == {"note": "of a test"}
    assert program.example_inputs is None


def test_example_inputs_are_not_unpickled(file: Path, trap: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        content = io.BytesIO()
        torch.save(Bomb(trap), content)
        members["data/sample_inputs/model.pt"] = content.getvalue()

    edited = edit(file, change)
    load_program(edited)
    assert not trap.exists()
    with pytest.raises(Exception):  # noqa: B017
        torch.export.load(edited)
    assert trap.exists(), "the trap works: torch itself falls into it"


def test_pickled_tensors_are_refused(file: Path, trap: Path) -> None:
    def pickled(members: dict[str, bytes]) -> None:
        config = json.loads(members[WEIGHTS])
        config["config"]["conv.bias"]["use_pickle"] = True
        members[WEIGHTS] = json.dumps(config).encode()
        members["data/weights/" + config["config"]["conv.bias"]["path_name"]] = pickle.dumps(
            Bomb(trap)
        )

    with pytest.raises(StorageError, match=r"'conv.bias' as a pickle.*export again"):
        load_program(edit(file, pickled))
    assert not trap.exists()


@pytest.mark.parametrize("name", ["data/weights/model.pt", "data/constants/model.pt"])
def test_old_lists_of_tensors_are_refused(file: Path, trap: Path, name: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        members[name] = pickle.dumps(Bomb(trap))

    with pytest.raises(StorageError, match="pickled tensors"):
        load_program(edit(file, change))
    assert not trap.exists()


def test_compiled_code_is_refused(file: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        members["data/aotinductor/model/code.so"] = b"code"

    with pytest.raises(StorageError, match=r"compiled code .*code.so"):
        load_program(edit(file, change))


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system", "torch.hub.load", "_operator.attrgetter", "_operator.methodcaller",
        "torch.ops.import_module.__call__", "torch.ops.load_library", "math.__loader__.load_module",
        "torch.ops.aten.from_file.default", "torch.ops.aten.add.Tensor.__init__", "#triton#kernel",
        "torch.ops.higher_order.call_torchbind", "builtins.exec", "torch.load",
    ],
)  # fmt: skip
def test_only_operators_are_called(file: Path, target: str) -> None:
    def change(model: Any) -> None:
        model["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(StorageError, match="not an operator of torch"):
        load_program(edit_json(file, MODEL, change))


def test_an_unknown_operator_is_named(file: Path) -> None:
    def change(model: Any) -> None:
        model["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.mine.special.default"

    with pytest.raises(StorageError, match=r"'mine.special.default'.*import the package"):
        load_program(edit_json(file, MODEL, change))


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')", "s0.__class__", "open(s0)", "exec(s1)", "(s0).name",
        "Symbol('s0').__class__", "lambda: s0", "s0 if s1 else s2", "[s0]",
    ],
)  # fmt: skip
def test_sizes_are_expressions_of_symbols(file: Path, expression: str) -> None:
    def change(model: Any) -> None:
        model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {
            "as_expr": {"expr_str": expression, "hint": {"as_int": 4}}
        }

    with pytest.raises(StorageError, match="not an expression of symbols"):
        load_program(edit_json(file, MODEL, change))


@pytest.mark.parametrize(
    "structure",
    [
        {
            "type": "collections.defaultdict",
            "context": {
                "default_factory_module": "antigravity", "default_factory_name": "x",
                "dict_context": [],
            },
            "children_spec": [],
        },
        {
            "type": "builtins.dict", "children_spec": [],
            "context": '[{"__enum__": true, "fqn": "antigravity:X", "name": "Y"}]',
        },
    ],
)  # fmt: skip
def test_structures_that_import_are_refused(file: Path, structure: Any) -> None:
    def change(model: Any) -> None:
        call = model["graph_module"]["module_call_graph"][0]["signature"]
        call["in_spec"] = json.dumps([1, structure])

    with pytest.raises(StorageError, match="torch would import"):
        load_program(edit_json(file, MODEL, change))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pt2"
    with pytest.raises(StorageError, match=r"not a file; give the path of a \.pt2 file"):
        read_exported(path)
    path.write_bytes(b"no archive")
    with pytest.raises(StorageError, match=r"cannot be read.*torch\.export\.save"):
        read_exported(path)
    torch.save({"x": torch.ones(2)}, path)
    with pytest.raises(StorageError, match="is a pickle, a TorchScript archive"):
        read_exported(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    with pytest.raises(StorageError, match="older torch"):
        read_exported(path)


@pytest.mark.parametrize("member", [MODEL, WEIGHTS, "data/weights/weight_0", "archive_version"])
def test_damaged_files_have_a_clear_error(file: Path, member: str) -> None:
    def without(members: dict[str, bytes]) -> None:
        del members[member]

    def shorter(members: dict[str, bytes]) -> None:
        members[member] = members[member][: len(members[member]) // 2]

    for change in (without, shorter):
        with pytest.raises(StorageError, match=r"write it again|gives? a file|lacks"):
            load_program(edit(file, change))


def test_a_truncated_file_has_a_clear_error(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(StorageError, match="write it again"):
        load_program(file)


def test_a_custom_object_is_refused(file: Path) -> None:
    def change(model: Any) -> None:
        node = model["graph_module"]["graph"]["nodes"][0]
        node["inputs"][0]["arg"] = {"as_custom_obj": {"name": "thing", "class_fqn": "mine.Thing"}}

    with pytest.raises(StorageError, match=r"object of mine\.Thing"):
        load_program(edit_json(file, MODEL, change))


def test_every_operator_of_an_ordinary_program_is_let_through(tmp_path: Path) -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = self.layer(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.layer(y)
            return y.float().view(x.shape[0] * 2, -1)[: x.shape[0] // 2 + 1]

    model, x = Many(), torch.randn(6, 4)
    path = saved(exported(model, x), tmp_path)
    program, _ = load_program(path)
    assert torch.allclose(program.module(check_guards=False)(x), model(x))

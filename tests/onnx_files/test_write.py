"""The written file: sizes in it change wherever they are said, and nothing else does."""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from tests.onnx_files.exported import difference, outputs, run
from tests.onnx_files.harness import model_from, rand, tensor_input
from torch import nn

import interpress
from interpress import Result
from interpress.errors import ArgumentError, StorageError
from interpress.onnx_files import write

Node = tuple[str, Sequence[str], Sequence[str], dict[str, object]]
IMAGES = torch.from_numpy(rand(60, 3, 4, 4))


def weights() -> dict[str, np.ndarray]:
    """Return weights of which 4 of the 8 channels repeat others of the same half: they can go."""
    first = rand(8, 3, 1, 1, seed=1)
    first[2:4], first[6:] = first[:2], first[4:6]
    return {
        "a.weight": first,
        "a.bias": np.zeros(8, np.float32),
        "b.weight": rand(5, 8, 1, 1, seed=2),
        "half.weight": rand(5, 4, 1, 1, seed=3),
        "l.weight": rand(128, 5, seed=4),
    }


def file_of(nodes: Sequence[Node], opset: int = 17, **sizes: Sequence[int]) -> ModelProto:
    """Return a file that takes images of 3x4x4; `sizes` are further constants."""
    constants = [numpy_helper.from_array(value, name) for name, value in weights().items()]
    constants += [numpy_helper.from_array(np.array(v), name) for name, v in sizes.items()]
    made = [
        helper.make_node(op, list(ins), list(outs), name=f"n{index}", **words)
        for index, (op, ins, outs, words) in enumerate(nodes)
    ]
    return model_from(made, [tensor_input("x", "n", 3, 4, 4)], ["y"], constants, opset)


CONV: Node = ("Conv", ["x", "a.weight", "a.bias"], ["h"], {})
JOIN: list[Node] = [
    ("Relu", ["p"], ["r"], {}), ("Concat", ["r", "q"], ["j"], {"axis": 1}),
    ("Conv", ["j", "b.weight"], ["y"], {}),
]  # fmt: skip
FILES: dict[str, ModelProto] = {
    "split, attribute": file_of(
        [CONV, ("Split", ["h"], ["p", "q"], {"axis": 1, "split": [4, 4]}), *JOIN], 11
    ),
    "split in equal parts, opset 11": file_of(
        [CONV, ("Split", ["h"], ["p", "q"], {"axis": 1}), *JOIN], 11
    ),
    "split, input": file_of(
        [CONV, ("Split", ["h", "s"], ["p", "q"], {"axis": 1}), *JOIN], 13, s=[4, 4]
    ),
    "split in equal parts, opset 13": file_of(
        [CONV, ("Split", ["h"], ["p", "q"], {"axis": 1}), *JOIN], 13
    ),
    "split, number of parts": file_of(
        [CONV, ("Split", ["h"], ["p", "q"], {"axis": 1, "num_outputs": 2}), *JOIN], 18
    ),
    "slices": file_of(
        [CONV, ("Slice", ["h", "zero", "four", "one"], ["p"], {}),
         ("Slice", ["h", "four", "eight", "one"], ["q"], {}), *JOIN],
        zero=[0], one=[1], four=[4], eight=[8],
    ),
    "reshape": file_of(
        [CONV, ("Relu", ["h"], ["r"], {}), ("Reshape", ["r", "flat"], ["f"], {}),
         ("MatMul", ["f", "l.weight"], ["y"], {})], flat=[-1, 128],
    ),
    "reshape whose sizes another node reads too": file_of(
        [("Reshape", ["x", "whole"], ["v"], {}), ("Reshape", ["v", "back"], ["x2"], {}),
         ("Conv", ["x2", "a.weight", "a.bias"], ["h"], {}), ("Relu", ["h"], ["r"], {}),
         ("Reshape", ["r", "flat"], ["f"], {}), ("MatMul", ["f", "l.weight"], ["y1"], {}),
         ("Reshape", ["x4", "flat"], ["f2"], {}), ("ReduceSum", ["f2", "one"], ["z"], {}),
         ("Concat", ["x", "x", "x"], ["x3"], {"axis": 1}),
         ("Slice", ["x3", "zero", "eight", "one"], ["x4"], {}),
         ("Add", ["y1", "z"], ["y"], {})],
        whole=[-1, 48], back=[-1, 3, 4, 4], flat=[-1, 128], one=[1], zero=[0], eight=[8],
    ),
    "computed sizes": file_of(
        [CONV, ("Relu", ["h"], ["r"], {}), ("Concat", ["minus", "size"], ["flat"], {"axis": 0}),
         ("Reshape", ["r", "flat"], ["f"], {}), ("MatMul", ["f", "l.weight"], ["y"], {})],
        minus=[-1], size=[128],
    ),
    "weights through nodes": file_of(
        [("Identity", ["a.weight"], ["w"], {}), ("Conv", ["x", "w", "a.bias"], ["h"], {}),
         ("Relu", ["h"], ["r"], {}), ("Conv", ["r", "b.weight"], ["y"], {})],
    ),
    "channels by the shape": file_of(
        [CONV, ("Relu", ["h"], ["r"], {}), ("Shape", ["r"], ["s"], {}),
         ("Slice", ["s", "zero", "one"], ["n"], {}), ("Concat", ["n", "minus"], ["t"], {"axis": 0}),
         ("Reshape", ["r", "t"], ["f"], {}), ("MatMul", ["f", "l.weight"], ["y"], {})],
        zero=[0], one=[1], minus=[-1],
    ),
}  # fmt: skip
# a node has to come after those that it reads
_nodes = list(FILES["reshape whose sizes another node reads too"].graph.node)
del FILES["reshape whose sizes another node reads too"].graph.node[:]
FILES["reshape whose sizes another node reads too"].graph.node.extend(
    [_nodes[index] for index in (0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10)]
)


@pytest.mark.parametrize("name", FILES)
def test_sizes_change_wherever_they_are_said(name: str, tmp_path: Path) -> None:
    file = onnx.shape_inference.infer_shapes(FILES[name])
    before = file.SerializeToString()
    result = interpress.compress(file, IMAGES, width=0.5)
    assert result.plan[0].after == 4
    result.save_onnx(tmp_path / "smaller.onnx")
    assert file.SerializeToString() == before
    onnx.checker.check_model(tmp_path / "smaller.onnx", full_check=True)
    served = run(tmp_path / "smaller.onnx", IMAGES[:5])
    assert difference(served, outputs(result.model, IMAGES[:5])) < 1e-5
    # the channels that went were copies
    assert difference(served, run(file, IMAGES[:5])) < 1e-4


@pytest.fixture(scope="module")
def result() -> Result:
    return interpress.compress(FILES["reshape"], IMAGES, width=0.5)


def test_files_are_replaced_only_if_asked_for(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "smaller.onnx"
    path.write_text("mine")
    with pytest.raises(StorageError, match="exists; pass overwrite=True"):
        result.save_onnx(path)
    assert path.read_text() == "mine"
    result.save_onnx(path, overwrite=True)
    assert len(onnx.load(path).graph.node) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["smaller.onnx"]


def test_a_folder_that_does_not_exist(result: Result, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder; choose one that exists"):
        result.save_onnx(tmp_path / "none" / "smaller.onnx")


def test_a_failure_leaves_no_file(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "replace", full)
    with pytest.raises(StorageError, match="No space left on device; choose a folder"):
        result.save_onnx(tmp_path / "smaller.onnx")
    assert not list(tmp_path.iterdir())


def test_large_weights_go_into_a_second_file(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_LARGEST", 100)
    path = tmp_path / "smaller.onnx"
    for _ in range(2):
        result.save_onnx(path, overwrite=True)
        names = sorted(file.name for file in tmp_path.iterdir())
        assert names == ["smaller.onnx", "smaller.onnx.data"]
        served = run(path, IMAGES[:3])
        assert difference(served, outputs(result.model, IMAGES[:3])) < 1e-6


def test_a_network_of_another_origin_has_no_file(tmp_path: Path) -> None:
    plain = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    other = interpress.compress(plain, IMAGES, width=0.5)
    assert other.onnx is None
    with pytest.raises(ArgumentError, match=r"was not read from an ONNX file.*torch.onnx.export"):
        other.save_onnx(tmp_path / "smaller.onnx")


def test_layers_that_became_two_cannot_be_written(result: Result, tmp_path: Path) -> None:
    exchanged = copy.deepcopy(result.model)
    del exchanged.a.weight
    with pytest.raises(StorageError, match=r"no 'a.weight'.*compress without lowrank"):
        write.save_onnx(result.original, exchanged, tmp_path / "smaller.onnx", overwrite=False)


def test_a_result_folder_holds_the_file_and_is_loaded_with_it(
    result: Result, tmp_path: Path
) -> None:
    result.save(tmp_path / "small")
    assert (tmp_path / "small" / "model.onnx").is_file()
    onnx.save(FILES["reshape"], tmp_path / "original.onnx")
    loaded = interpress.load(tmp_path / "small", interpress.read_onnx(tmp_path / "original.onnx"))
    assert difference(outputs(loaded, IMAGES[:3]), outputs(result.model, IMAGES[:3])) == 0.0
    served = run(tmp_path / "small" / "model.onnx", IMAGES[:3])
    assert difference(served, outputs(loaded, IMAGES[:3])) < 1e-6

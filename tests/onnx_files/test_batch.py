"""Files for one example at a time: read for any number where that is right, else refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from tests.onnx_files.harness import model_from, rand, tensor_input

import interpress
from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx
from interpress.onnx_files.source import source_of


def ints(name: str, *values: int) -> object:
    return numpy_helper.from_array(np.array(values), name)


def file_of(
    nodes: list[tuple[str, list[str], str, dict[str, object]]], batch: int = 1
) -> ModelProto:
    """Return a file for `batch` examples of shape (6, 4)."""
    constants = [
        ints("s1", batch, 2, 12), ints("s2", batch, -1), ints("s3", 2 * batch, 12),
        ints("s4", batch, 24),
        numpy_helper.from_array(rand(1, 1, 4), "token"),
        numpy_helper.from_array(rand(4, 4, seed=3), "w"),
        numpy_helper.from_array(rand(24, 5, seed=4), "w2"),
        numpy_helper.from_array(rand(4, 12, seed=5), "up"),
        numpy_helper.from_array(rand(12, 4, seed=6), "down"),
    ]  # fmt: skip
    made = [helper.make_node(op, ins, [out], **words) for op, ins, out, words in nodes]
    return model_from(made, [tensor_input("x", batch, 6, 4)], ["y"], constants)


FREE = {
    "reshapes": [("Reshape", ["x", "s1"], "a", {}), ("Relu", ["a"], "b", {}),
                 ("Reshape", ["b", "s2"], "y", {})],
    "a token": [("MatMul", ["x", "w"], "a", {}), ("Concat", ["token", "a"], "y", {"axis": 1})],
    "a token, counted from the end": [("Concat", ["x", "token"], "y", {"axis": -2})],
    "no shapes": [("MatMul", ["x", "w"], "a", {}), ("Relu", ["a"], "y", {})],
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_read_for_any_number_of_examples(name: str) -> None:
    network = read_onnx(file_of(FREE[name]))
    examples = torch.from_numpy(rand(3, 6, 4))
    singly = torch.cat([network(example[None]) for example in examples])
    assert torch.allclose(network(examples), singly, atol=1e-6)
    source = source_of(network)
    assert source is not None
    assert source.fixed_batch == 1


SEVERAL = {
    "reshapes": FREE["reshapes"],
    "no shapes": FREE["no shapes"],
    "a layer after a reshape": [
        ("Reshape", ["x", "s4"], "a", {}),
        ("MatMul", ["a", "w2"], "y", {}),
    ],
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("batch", [3, 4])  # 4 is another size of the file too
def test_a_file_for_several_examples_is_read_for_any_number(name: str, batch: int) -> None:
    network = read_onnx(file_of(SEVERAL[name], batch))
    examples = torch.from_numpy(rand(2 * batch, 6, 4))
    parts = torch.cat([network(part) for part in examples.split(batch)])
    assert torch.allclose(network(examples), parts, atol=1e-6)
    assert torch.allclose(network(examples[:2]), parts[:2], atol=1e-6)
    source = source_of(network)
    assert source is not None
    assert source.fixed_batch == batch


def test_a_file_for_several_examples_is_compressed_and_written(tmp_path: Path) -> None:
    layers = [("MatMul", ["x", "up"], "u", {}), ("Relu", ["u"], "r", {}),
              ("MatMul", ["r", "down"], "d", {}), ("Reshape", ["d", "s4"], "f", {}),
              ("MatMul", ["f", "w2"], "y", {})]  # fmt: skip
    examples = torch.from_numpy(rand(50, 6, 4))  # no multiple of the batch size
    result = interpress.compress(file_of(layers, 3), examples, flops=0.9, progress=False)
    assert result.model(examples).shape == (50, 5)
    result.save_onnx(tmp_path / "smaller.onnx")
    again = read_onnx(tmp_path / "smaller.onnx")
    assert torch.allclose(again(examples), result.model(examples), atol=1e-5)


FIXED = {
    "it mixes examples": [("MatMul", ["x", "up"], "u", {}), ("Relu", ["u"], "r", {}),
                          ("MatMul", ["r", "down"], "d", {}), ("Reshape", ["d", "s3"], "a", {}),
                          ("Softmax", ["a"], "b", {"axis": 0}),
                          ("Reshape", ["b", "s4"], "c", {}), ("MatMul", ["c", "w2"], "y", {})],
}  # fmt: skip


def test_a_file_that_is_right_for_one_example_only() -> None:
    model = file_of(FIXED["it mixes examples"])
    network = read_onnx(model)
    assert network(torch.rand(1, 6, 4)).shape == (1, 5)
    examples = torch.from_numpy(rand(60, 6, 4))
    for data in (examples, [example[None] for example in examples]):
        with pytest.raises(CaptureError, match=r"one example at a time.*dynamic batch"):
            interpress.compress(model, data, flops=0.9)


TOGETHER = {
    "sizes": FIXED["it mixes examples"],
    "values": [("MatMul", ["x", "up"], "u", {}), ("Softmax", ["u"], "s", {"axis": 0}),
               ("MatMul", ["s", "down"], "y", {})],
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_a_file_that_is_right_for_three_examples_only(name: str) -> None:
    model = file_of(TOGETHER[name], 3)
    assert len(read_onnx(model)(torch.rand(3, 6, 4))) == 3
    examples = torch.from_numpy(rand(60, 6, 4))
    for data in (examples, list(examples.split(3))):
        with pytest.raises(CaptureError, match=r"3 examples at a time.*dynamic batch"):
            interpress.compress(model, data, flops=0.9)

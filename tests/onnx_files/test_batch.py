"""Files for one example at a time: read for any number where that is right, else refused."""

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


def file_of(nodes: list[tuple[str, list[str], str, dict[str, object]]]) -> ModelProto:
    """Return a file for one example of shape (1, 6, 4)."""
    constants = [
        ints("s1", 1, 2, 12), ints("s2", 1, -1), ints("s3", 2, 12), ints("s4", 1, 24),
        numpy_helper.from_array(rand(1, 1, 4), "token"),
        numpy_helper.from_array(rand(4, 4, seed=3), "w"),
        numpy_helper.from_array(rand(24, 5, seed=4), "w2"),
        numpy_helper.from_array(rand(4, 12, seed=5), "up"),
        numpy_helper.from_array(rand(12, 4, seed=6), "down"),
    ]  # fmt: skip
    made = [helper.make_node(op, ins, [out], **words) for op, ins, out, words in nodes]
    return model_from(made, [tensor_input("x", 1, 6, 4)], ["y"], constants)


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
    assert source.fixed_batch


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

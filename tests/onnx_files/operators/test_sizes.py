"""Arithmetic on shapes, as exporters write it, gives the right shapes at any size."""

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx_files.harness import (
    assert_equal,
    model_from,
    rand,
    run_file,
    run_network,
    tensor_input,
)

from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx

Node = tuple[str, Sequence[str], str, dict[str, object]]
INTEGERS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "minus": -1, "far": 2**63 - 1,
}  # fmt: skip
LISTS = {
    "l0": [0], "l1": [1], "l2": [2], "l3": [3], "l4": [4], "m1": [-1], "l23": [2, 3], "l00": [0, 0],
    "lfar": [2**63 - 1], "ones3": [1, 1, 1], "target": [-1, 4, 6],
}  # fmt: skip
HALF = {"f2": np.float32(2.0), "fh": np.float32(0.5)}

CHAINS: dict[str, list[Node]] = {
    "view(x.size(0), -1)": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "zero"], "b", {}),
        ("Unsqueeze", ["b", "l0"], "u", {}), ("Concat", ["u", "m1"], "c", {"axis": 0}),
        ("Reshape", ["x", "c"], "y", {}),
    ],
    "view(b, c // 2, 2, h * w)": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "l0"], "b", {}),
        ("Gather", ["s", "l1"], "c", {}),
        ("Slice", ["s", "l2", "l4", "l0"], "hw", {}), ("ReduceProd", ["hw"], "n", {}),
        ("Div", ["c", "l2"], "half", {}), ("Concat", ["b", "half", "l2", "n"], "t", {"axis": 0}),
        ("Reshape", ["x", "t"], "y", {}),
    ],
    "arithmetic": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "three"], "w", {}),
        ("Add", ["w", "two"], "a", {}), ("Sub", ["a", "two"], "d", {}),
        ("Mul", ["d", "two"], "m", {}), ("Div", ["m", "two"], "q", {}),
        ("Neg", ["q"], "neg", {}), ("Neg", ["neg"], "pos", {}),
        ("Unsqueeze", ["pos", "l0"], "u", {}), ("Concat", ["m1", "u"], "c", {"axis": 0}),
        ("Reshape", ["x", "c"], "y", {}),
    ],
    "interpolate to twice the size, through floats": [
        ("Shape", ["x"], "s", {}), ("Slice", ["s", "l0", "l2"], "bc", {}),
        ("Slice", ["s", "l2", "lfar"], "hw", {}), ("Cast", ["hw"], "f", {"to": TensorProto.FLOAT}),
        ("Mul", ["f", "f2"], "g", {}), ("Floor", ["g"], "fl", {}),
        ("Cast", ["fl"], "i", {"to": TensorProto.INT64}), ("Concat", ["bc", "i"], "t", {"axis": 0}),
        ("Resize", ["x", "", "", "t"], "y", {"coordinate_transformation_mode": "asymmetric",
                                             "nearest_mode": "floor"}),
    ],
    "half of the size, rounded up": [
        ("Shape", ["x"], "s", {}), ("Slice", ["s", "l2", "l3"], "h", {}),
        ("Cast", ["h"], "f", {"to": TensorProto.FLOAT}), ("Mul", ["f", "fh"], "g", {}),
        ("Ceil", ["g"], "fl", {}), ("Cast", ["fl"], "i", {"to": TensorProto.INT64}),
        ("Slice", ["x", "l0", "i", "l2"], "y", {}),
    ],
    "expand as torch writes it": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "zero"], "b", {}),
        ("Unsqueeze", ["b", "l0"], "u", {}), ("Concat", ["u", "l1", "l4"], "t", {"axis": 0}),
        ("ConstantOfShape", ["l3"], "o", {"value": helper.make_tensor("v", 7, [1], [1])}),
        ("Mul", ["o", "minus"], "neg", {}), ("Equal", ["target", "neg"], "e", {}),
        ("Where", ["e", "o", "target"], "shape", {}), ("Expand", ["row", "shape"], "y", {}),
    ],
    "expand to the size of the batch": [
        ("Shape", ["x"], "s", {}), ("Slice", ["s", "l0", "l1"], "b", {}),
        ("Concat", ["b", "l1", "l4"], "t", {"axis": 0}), ("Expand", ["token", "t"], "y", {}),
    ],
    "a grid of positions": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "two"], "h", {}),
        ("Range", ["zero", "h", "one"], "r", {}), ("Cast", ["r"], "y", {"to": TensorProto.FLOAT}),
    ],
    "zeros of the size of the input": [
        ("Shape", ["x"], "s", {}), ("ConstantOfShape", ["s"], "z", {}),
        ("Add", ["x", "z"], "y", {}),
    ],
    "a size as a number": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "one"], "c", {}),
        ("Cast", ["c"], "f", {"to": TensorProto.FLOAT}), ("Sqrt", ["f"], "r", {}),
        ("Div", ["x", "r"], "y", {}),
    ],
    "the number of elements": [
        ("Size", ["x"], "n", {}), ("Unsqueeze", ["n", "l0"], "t", {}),
        ("Reshape", ["x", "t"], "y", {}),
    ],
    "sizes squeezed and shaped again": [
        ("Shape", ["x"], "s", {}), ("Slice", ["s", "l0", "l1"], "b", {}),
        ("Squeeze", ["b", "l0"], "q", {}), ("Reshape", ["q", "l1"], "r", {}),
        ("Identity", ["r"], "i", {}), ("Concat", ["i", "m1"], "t", {"axis": 0}),
        ("Reshape", ["x", "t"], "y", {}),
    ],
    "a part of the shape by attributes": [
        ("Shape", ["x"], "s", {"start": 0, "end": -2}), ("Concat", ["s", "m1"], "t", {"axis": 0}),
        ("Reshape", ["x", "t"], "y", {}),
    ],
    "split in the middle": [
        ("Shape", ["x"], "s", {}), ("Gather", ["s", "l1"], "c", {}), ("Div", ["c", "l2"], "h", {}),
        ("Slice", ["x", "l0", "h", "l1"], "a", {}), ("Slice", ["x", "h", "lfar", "l1"], "b", {}),
        ("Sub", ["a", "b"], "y", {}),
    ],
}  # fmt: skip


def model_of_chain(nodes: list[Node]) -> object:
    initializers = [
        *(numpy_helper.from_array(np.array(n), name) for name, n in INTEGERS.items()),
        *(numpy_helper.from_array(np.array(n), name) for name, n in LISTS.items()),
        *(numpy_helper.from_array(np.array(n), name) for name, n in HALF.items()),
        numpy_helper.from_array(rand(1, 1, 4), "token"),
    ]
    return model_from(
        [helper.make_node(op, inputs, [output], **words) for op, inputs, output, words in nodes],
        [tensor_input("x", "n", "c", "h", "w"), tensor_input("row", "n", 4, 1)],
        ["y"],
        initializers,
    )


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    model = model_of_chain(CHAINS[name])
    for shape in ((2, 4, 3, 5), (3, 6, 5, 4)):
        feeds = {"x": rand(*shape), "row": rand(shape[0], 4, 1)}
        assert_equal(run_network(model, feeds), run_file(model, feeds))


REFUSED: dict[str, tuple[list[Node], str]] = {
    "a size that is compared": ([
        ("Shape", ["x"], "s", {}), ("Equal", ["s", "l4"], "e", {}),
        ("Where", ["e", "s", "l1"], "t", {}), ("Reshape", ["x", "t"], "y", {}),
    ], "only known when the network runs"),
    "a shape that is sliced at a size": ([
        ("Shape", ["x"], "s", {}), ("Slice", ["s", "l0", "s"], "t", {}),
        ("Reshape", ["x", "t"], "y", {}),
    ], "slices a shape at a size"),
    "a shape that is shaped wrongly": ([
        ("Shape", ["x"], "s", {}), ("Reshape", ["s", "l3"], "t", {}),
        ("Reshape", ["x", "t"], "y", {}),
    ], "ValueError"),
    "a shape as a truth value": ([
        ("Shape", ["x"], "s", {}), ("Cast", ["s"], "c", {"to": TensorProto.BOOL}),
        ("Where", ["c", "s", "l1"], "t", {}), ("Reshape", ["x", "t"], "y", {}),
    ], "casts sizes to torch.bool"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    nodes, reason = REFUSED[name]
    with pytest.raises(CaptureError, match=reason):
        read_onnx(model_of_chain(nodes))

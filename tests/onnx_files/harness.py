"""Models of one operator: read them, and compare with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.utils import _pytree as pytree

from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx

Array = np.ndarray[Any, Any]

RELATIVE, ABSOLUTE = 2e-5, 5e-6  # what float32 in another order may cost
IR_VERSION = 10


@dataclass(frozen=True)
class Const:
    """An input that the file holds."""

    value: Array


@dataclass(frozen=True)
class Case:
    """A node, and the inputs that it runs on. Arrays are inputs of the file; None is left out."""

    operator: str
    inputs: Sequence[Array | Const | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: int = 1
    domain: str = ""

    def __str__(self) -> str:
        shapes = [
            "-" if item is None else "x".join(map(str, array_of(item).shape)) or "scalar"
            for item in self.inputs
        ]
        words = [f"{key}={value}" for key, value in self.attributes.items()]
        return " ".join([self.operator, str(self.opset), ",".join(shapes), *words])


def case(operator: str, *inputs: Any, opset: int = 17, **attributes: Any) -> Case:
    """Return a case with one output."""
    return Case(operator, inputs, attributes, opset)


def const(*values: float, dtype: Any = np.int64) -> Const:
    """Return a constant list of numbers."""
    return Const(np.array(values, dtype=dtype))


def scalar(value: Any, dtype: Any = np.float32) -> Const:
    """Return a constant without dims."""
    return Const(np.array(value, dtype=dtype))


def rand(*shape: int, seed: int = 0) -> Array:
    """Return normal random numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def weight(*shape: int, seed: int = 1) -> Const:
    """Return a constant of normal random numbers."""
    return Const(rand(*shape, seed=seed))


def array_of(item: Array | Const) -> Array:
    return item.value if isinstance(item, Const) else item


def model_of(case: Case, *, free: bool = False, given: bool = False) -> onnx.ModelProto:
    """Return a file of the node alone.

    With `free` it does not say the sizes of its inputs. With `given` it holds no constants: all of
    them are inputs.
    """
    names, inputs, initializers = [], [], []
    for position, item in enumerate(case.inputs):
        if item is None:
            names.append("")
            continue
        names.append(f"i{position}")
        array = array_of(item)
        if isinstance(item, Const) and not given:
            initializers.append(numpy_helper.from_array(array, names[-1]))
            continue
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = [f"d{position}_{dim}" for dim in range(array.ndim)] if free else array.shape
        inputs.append(helper.make_tensor_value_info(names[-1], kind, shape))
    outputs = [f"o{index}" for index in range(case.outputs)]
    node = helper.make_node(case.operator, names, outputs, domain=case.domain, **case.attributes)
    return model_from([node], inputs, outputs, initializers, case.opset, case.domain)


def model_from(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    initializers: Sequence[Any] = (),
    opset: int = 17,
    domain: str = "",
) -> onnx.ModelProto:
    """Return a file; the types of outputs that are given by name are inferred."""
    infos = [
        value if not isinstance(value, str) else onnx.ValueInfoProto(name=value)
        for value in outputs
    ]
    graph = helper.make_graph(nodes, "small", inputs, infos, list(initializers))
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def tensor_input(name: str, *shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    """Return the description of an input."""
    return helper.make_tensor_value_info(name, kind, shape)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_file(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Return what ONNX Runtime computes."""
    session = session_of(model)
    names = [value.name for value in session.get_inputs()]
    return list(session.run(None, {name: feeds[name] for name in names}))


def run_network(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Return what the network computes that is read from the file."""
    network = read_onnx(model)
    names = [value.name for value in model.graph.input]
    stored = {item.name for item in model.graph.initializer}
    arguments = [torch.from_numpy(feeds[name]) for name in names if name not in stored]
    with torch.no_grad():
        return [leaf.numpy() for leaf in pytree.tree_leaves(network(*arguments))]


def assert_equal(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    """Assert equal outputs up to rounding, with the same shapes and types."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=RELATIVE, atol=ABSOLUTE)


def feeds_of(case: Case) -> dict[str, Array]:
    """Return the inputs of a case by name, constants too."""
    return {f"i{p}": array_of(item) for p, item in enumerate(case.inputs) if item is not None}


def check_equal(case: Case) -> None:
    """Assert that the node is read right.

    The file says all sizes and constants: it must be read. If it leaves out the sizes, or takes
    the constants as inputs, then it may be refused, but must not be read wrong.
    """
    feeds = feeds_of(case)
    expected = run_file(model_of(case), feeds)
    assert_equal(run_network(model_of(case), feeds), expected)
    variants = [model_of(case, free=True)]
    if any(isinstance(item, Const) for item in case.inputs):
        variants.append(model_of(case, given=True))
    for model in variants:
        try:
            actual = run_network(model, feeds)
        except CaptureError:
            continue
        assert_equal(actual, expected)


def check_refused(case: Case, reason: str) -> None:
    """Assert that a node is refused with this reason, although ONNX Runtime runs it."""
    run_file(model_of(case), feeds_of(case))
    with pytest.raises(CaptureError, match=reason) as caught:
        read_onnx(model_of(case))
    assert case.operator in str(caught.value)
    assert "Compress the PyTorch network" in str(caught.value)

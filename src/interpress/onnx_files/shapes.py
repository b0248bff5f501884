"""Shapes and element types of the values of a file, as far as the file tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interpress.onnx_files.library import onnx_library

Shape = tuple[int | None, ...]

_LARGEST_SIZES = 1024
"""Elements of a constant whose values may be sizes. Larger ones are weights, which would be copied
at every inference, and have more than the 2 GB that onnx can serialise in large files."""


class Shapes:
    """What shape inference of onnx finds out, with the constants and ranks that it misses."""

    def __init__(self, proto: Any, measured: Mapping[str, tuple[int, ...]]) -> None:
        """Infer the shapes; those of `measured` are known without that."""
        self._proto = _without_weights(proto)
        self._measured = measured
        self._ranks: dict[str, int] = {}
        self._constants: dict[str, Tensor] = {}
        self._is_stale = False
        self._shapes: dict[str, Shape] = {}
        self._types: dict[str, int] = {}
        self._infer(self._proto)

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value; sizes that are not known are None."""
        if name in self._measured:
            return self._measured[name]
        if self._is_stale and None in self._shapes.get(name, (None,)):
            self._infer(self._with_notes())
        return self._shapes.get(name)

    def element_type(self, name: str) -> int | None:
        """Return the element type of a value, as the number that ONNX gives it."""
        return self._types.get(name)

    def note_rank(self, name: str, rank: int) -> None:
        """Take down the number of dims of a value that shape inference does not know."""
        if name not in self._shapes:
            self._ranks[name] = rank
            self._shapes[name] = (None,) * rank
            self._is_stale = True

    def note_constant(self, name: str, value: Tensor) -> None:
        """Take down a constant that nodes compute, which shape inference does not do."""
        if value.numel() <= _LARGEST_SIZES and value.dtype != torch.bfloat16:
            self._constants[name] = value
            self._is_stale = True

    def _with_notes(self) -> Any:
        """Return a copy of the file that says the ranks and constants that were taken down."""
        onnx = onnx_library()
        copy = onnx.ModelProto()
        copy.CopyFrom(self._proto)
        for name, rank in self._ranks.items():
            kind = self._types.get(name, onnx.TensorProto.FLOAT)
            value = onnx.helper.make_tensor_value_info(name, kind, [None] * rank)
            copy.graph.value_info.append(value)
        nodes = [n for n in copy.graph.node if not self._constants.keys() & set(n.output)]
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        copy.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.ascontiguousarray(value.numpy()), name)
            for name, value in self._constants.items()
        )
        return copy

    def _infer(self, proto: Any) -> None:
        self._is_stale = False
        try:
            graph = onnx_library().shape_inference.infer_shapes(proto, data_prop=True).graph
        except Exception:  # an operator that onnx does not know
            graph = proto.graph
        for value in [*graph.value_info, *graph.input, *graph.output]:
            kind = value.type.tensor_type
            self._types[value.name] = kind.elem_type
            if kind.HasField("shape"):
                self._shapes[value.name] = tuple(
                    dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
                    for dim in kind.shape.dim
                )
        for item in graph.initializer:
            self._shapes[item.name] = tuple(item.dims)
            self._types[item.name] = item.data_type


def _without_weights(proto: Any) -> Any:
    """Return a copy of a file in which weights are inputs: of these only the shape matters."""
    onnx = onnx_library()
    graph = proto.graph
    weights = [item for item in graph.initializer if math.prod(item.dims) > _LARGEST_SIZES]
    names = {item.name for item in weights}
    small = [item for item in graph.initializer if item.name not in names]
    light = onnx.helper.make_graph(
        list(graph.node),
        graph.name,
        [value for value in graph.input if value.name not in names],
        graph.output,
        small,
        value_info=graph.value_info,
    )
    light.input.extend(
        onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims) for item in weights
    )
    return onnx.helper.make_model(
        light, opset_imports=proto.opset_import, ir_version=proto.ir_version,
        functions=proto.functions,
    )  # fmt: skip

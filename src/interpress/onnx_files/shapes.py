"""Shapes and element types of the values of a file, as far as the file tells them."""

from __future__ import annotations

from typing import Any

from interpress.onnx_files.library import onnx_library

Shape = tuple[int | None, ...]


class Shapes:
    """What shape inference of onnx finds out, and the ranks that it misses."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._noted: dict[str, int] = {}
        self._is_stale = False
        self._shapes: dict[str, Shape] = {}
        self._types: dict[str, int] = {}
        self._infer(proto)

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value; sizes that are not known are None."""
        if name not in self._shapes and self._is_stale:
            self._infer(self._with_noted())
        return self._shapes.get(name)

    def element_type(self, name: str) -> int | None:
        """Return the element type of a value, as the number that ONNX gives it."""
        return self._types.get(name)

    def note_rank(self, name: str, rank: int) -> None:
        """Take down the number of dims of a value that shape inference does not know."""
        if name not in self._shapes:
            self._noted[name] = rank
            self._shapes[name] = (None,) * rank
            self._is_stale = True

    def _with_noted(self) -> Any:
        """Return a copy of the file that says the ranks that were taken down."""
        onnx = onnx_library()
        copy = onnx.ModelProto()
        copy.CopyFrom(self._proto)
        for name, rank in self._noted.items():
            kind = self._types.get(name, onnx.TensorProto.FLOAT)
            value = onnx.helper.make_tensor_value_info(name, kind, [None] * rank)
            copy.graph.value_info.append(value)
        return copy

    def _infer(self, proto: Any) -> None:
        self._is_stale = False
        try:
            graph = onnx_library().shape_inference.infer_shapes(proto, data_prop=True).graph
        except Exception:  # a file of more than 2 GB, or an operator that onnx does not know
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

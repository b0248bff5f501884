"""`OnnxFile`: what is remembered of the file that a network was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn

from interpress.onnx_files.sizes import Path, Place

_KEY = "interpress.onnx"


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A file, and how the network that was read from it refers to it."""

    proto: Any
    """The `onnx.ModelProto`; it is never changed."""
    name: str
    """What errors call it."""
    inputs: Mapping[str, str]
    """The arguments of the network, to the names of the inputs in the file."""
    outputs: tuple[str, ...]
    """The names of the values that the network returns."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """The parameters and buffers of the network, to the names of the values in the file."""
    readers: Mapping[str, int] = field(default_factory=dict)
    """Parameters that share a value of the file, to the index of the one node that reads each."""
    sizes: Mapping[tuple[str, Path], Place] = field(default_factory=dict)
    """Integers among the arguments of the network's nodes, to their places in the file."""
    kept: tuple[str, ...] = ()
    """Operators after the network that are kept in the file as they are."""

    def __deepcopy__(self, memo: Any) -> OnnxFile:
        return self

    @property
    def fixed_batch(self) -> int | None:
        """How many examples the file says that it takes at a time; None if any number.

        It is the first dim of all inputs, or 1 if that is the first dim of one of them.
        """
        values = {value.name: value.type.tensor_type for value in self.proto.graph.input}
        shapes = [values[name].shape.dim for name in self.inputs.values()]
        sizes = {dims[0].dim_value if len(dims) > 0 else 0 for dims in shapes}
        if 1 in sizes:
            return 1
        return sizes.pop() or None if len(sizes) == 1 else None


def attach(network: fx.GraphModule, file: OnnxFile) -> None:
    """Remember the file that a network was read from; copies of the network remember it too."""
    network.meta[_KEY] = file


def source_of(network: nn.Module) -> OnnxFile | None:
    """Return the file that a network was read from, or None."""
    meta = getattr(network, "meta", None)
    source = meta.get(_KEY) if isinstance(meta, dict) else None
    return source if isinstance(source, OnnxFile) else None

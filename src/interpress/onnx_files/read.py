"""Read a file as an `fx.GraphModule`: one function of PyTorch, or a few, per node."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from interpress.errors import StorageError
from interpress.onnx_files.batch import measured_shapes, without_fixed_batch
from interpress.onnx_files.library import onnx_library
from interpress.onnx_files.names import identifier
from interpress.onnx_files.reader import Reader
from interpress.onnx_files.source import OnnxFile, attach, source_of
from interpress.onnx_files.tail import check_tail

_QUANTISED = {
    "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QuantizeLinear",
    "DequantizeLinear", "DynamicQuantizeLinear", "MatMulNBits", "QAttention", "QGemm",
}  # fmt: skip


def read_onnx(file: str | os.PathLike[str] | Any) -> fx.GraphModule:
    """Return the network of an ONNX file, or of an `onnx.ModelProto`, as a PyTorch network.

    Its parameters have the names of the file's weights, and it takes and returns what the file
    does. It can be compressed like any other network; `Result.save_onnx` writes the smaller one.
    Operators after the last layer that PyTorch has not, such as `NonMaxSuppression`, are not part
    of the network. They stay in the file.
    """
    proto, name = _load(file)
    _check(proto, name)
    network, nodes = _read(proto, name)
    source = source_of(network)
    if source is None or source.fixed_batch is None:
        return network
    shapes = measured_shapes(network, nodes)
    if shapes is None:
        return network
    flexible, _ = _read(proto, name, shapes, source.fixed_batch)
    return without_fixed_batch(network, flexible)


def _load(file: Any) -> tuple[Any, str]:
    onnx = onnx_library()
    if isinstance(file, onnx.ModelProto):
        return file, file.graph.name or "the model"
    path = Path(file)
    if not path.is_file():
        raise StorageError(f"{path} is not a file; give the path of an ONNX file")
    try:
        return onnx.load(path), str(path)
    except Exception as error:  # protobuf has several types, and onnx.load passes them on
        line = next(iter(str(error).splitlines()), "")
        raise StorageError(
            f"{path} cannot be read as ONNX ({type(error).__name__}: {line}); export it again, and "
            "keep files of external data beside it"
        ) from error


def _check(proto: Any, name: str) -> None:
    """Refuse files that cannot be read at all, with the reason."""
    counts = Counter(node.op_type for node in proto.graph.node)
    if not counts:
        raise StorageError(f"{name} holds no operators; give an ONNX file with a network")
    quantised = {name: count for name, count in counts.items() if name in _QUANTISED}
    if quantised:
        listed = ", ".join(f"{count} {operator}" for operator, count in quantised.items())
        raise StorageError(
            f"{name} is quantised ({listed}); compress the floating-point file, and quantise the "
            "smaller one"
        )
    if proto.graph.sparse_initializer:
        raise StorageError(f"{name} has sparse weights; export it with dense ones")
    if proto.functions:
        raise StorageError(
            f"{name} has functions of its own; write them out first, with "
            "onnx.inliner.inline_local_functions(model)"
        )


def _read(
    proto: Any,
    name: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
) -> tuple[fx.GraphModule, dict[str, str]]:
    """Return the network, and which of its nodes computes which value of the file.

    `shapes` are those of the values for the batch size that the file says; with them, this size is
    read as any batch size.
    """
    reader = Reader(proto, shapes, batch or 1)
    stored = {initializer.name for initializer in proto.graph.initializer}
    taken: set[str] = set()
    inputs: dict[str, str] = {}
    for value in proto.graph.input:
        if value.name not in stored:
            argument = identifier(value.name, taken)
            reader.add_input(value.name, argument)
            inputs[argument] = value.name
    for index, node in enumerate(proto.graph.node):
        reader.add_node(index, node)
    outputs = check_tail(reader, name)
    results = {output: reader.output(output) for output in outputs}
    only = next(iter(results.values()))
    reader.graph.output(only if len(results) == 1 else results)
    reader.graph.eliminate_dead_code()
    _drop_unused(reader.root, reader.graph)
    network = fx.GraphModule(reader.root, reader.graph, class_name="OnnxNetwork").eval()
    nodes = {node.name for node in reader.graph.nodes}
    used = dict(network.named_parameters()) | dict(network.named_buffers())
    kept = Counter(problem.operator for problem in reader.unread.values())
    attach(
        network,
        OnnxFile(
            proto=proto,
            name=name,
            inputs=inputs,
            outputs=tuple(outputs),
            weights={weight: value for weight, value in reader.weights.items() if weight in used},
            readers={weight: node for weight, node in reader.readers.items() if weight in used},
            sizes={key: place for key, place in reader.sizes.items() if key[0] in nodes},
            kept=tuple(f"{count} {operator}" for operator, count in kept.items()),
        ),
    )
    proxies = {key: value for key, value in reader.values.items() if isinstance(value, fx.Proxy)}
    return network, {key: proxy.node.name for key, proxy in proxies.items()}


def _drop_unused(root: nn.Module, graph: fx.Graph) -> None:
    """Remove parameters that no node reads, such as the bias of a node that was merged."""
    used = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    tensors = [*root.named_parameters(), *root.named_buffers()]
    for name in [name for name, _ in tensors if name not in used]:
        module, _, last = name.rpartition(".")
        delattr(root.get_submodule(module), last)


def is_onnx(model: Any) -> bool:
    """Return whether `model` is the path of an ONNX file, or an `onnx.ModelProto`."""
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix.lower() == ".onnx"
    return type(model).__name__ == "ModelProto" and not isinstance(model, torch.nn.Module)

"""The operators of a file that are not part of the network: they stay in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, fx

from interpress.errors import CaptureError
from interpress.onnx_files.call import is_small
from interpress.onnx_files.reader import Reader, Unread


def check_tail(reader: Reader, name: str) -> list[str]:
    """Return the names of the values that the network returns.

    They are the outputs of the file. If some operators cannot be read, they are also the values
    that these read. An operator with weights among them is an error: its layer could not shrink,
    nor could what stands before it be told from what it needs.
    """
    nodes = reader.proto.graph.node
    outputs = [
        value.name
        for value in reader.proto.graph.output
        if not isinstance(reader.values[value.name], Unread)
    ]
    for index in reader.unread:
        inputs = [value for value in nodes[index].input if value]
        for value in inputs:
            known = reader.values[value]
            if isinstance(known, Tensor) and not is_small(known):
                raise _not_readable(reader, name, nodes[index].name or nodes[index].output[0])
            if isinstance(known, np.ndarray):
                outputs += _sized(reader, known)
            if isinstance(known, fx.Proxy) and known.node.op == "call_function":
                outputs.append(value)
    for value in list(outputs):  # a shape is not a value of the network, but must not change
        known = reader.values[value]
        if isinstance(known, np.ndarray):
            outputs.remove(value)
            outputs += _sized(reader, known)
    outputs = list(dict.fromkeys(outputs))
    if not any(isinstance(reader.values[value], fx.Proxy) for value in outputs):
        if not reader.unread:
            raise CaptureError(
                f"{name} computes nothing from its inputs; give a file with a network"
            )
        raise _not_readable(reader, name, "the end of the file")
    return outputs


def _sized(reader: Reader, sizes: np.ndarray[Any, Any]) -> Iterator[str]:
    """Yield the names of the values whose sizes these are: they must not change."""
    names = {
        value.node: name for name, value in reader.values.items() if isinstance(value, fx.Proxy)
    }
    waiting = [size.node for size in sizes.reshape(-1) if isinstance(size, fx.Proxy)]
    while waiting:
        node = waiting.pop()
        if node not in names:
            waiting += node.all_input_nodes
        elif node.op == "call_function":
            yield names[node]


def _not_readable(reader: Reader, name: str, layer: str) -> CaptureError:
    """Return an error that names every operator that cannot be read, and what to do."""
    problems = reader.unread.values()
    first = [p for p in problems if not p.reason.startswith("it reads what")]
    counts = Counter(problem.operator for problem in first)
    listed = "; ".join(
        f"{operator} ({count}x, first at {next(p.node for p in first if p.operator == operator)!r}:"
        f" {next(p.reason for p in first if p.operator == operator)})"
        for operator, count in counts.most_common()
    )
    return CaptureError(
        f"{name} has operators that cannot be converted, before the layer at {layer!r}: {listed}. "
        "Compress the PyTorch network that the file was exported from, export it with other "
        "operators, or simplify it with onnxsim"
    )

"""Networks exported to ONNX files, in every way that PyTorch can."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

EXPORTERS = ("dynamo", "torchscript")


def export(
    model: nn.Module, example: Tensor, path: Path, exporter: str, *, fixed: bool = False
) -> Path:
    """Write a network as an ONNX file with the input "x"; `fixed` is for one example at a time."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes = None if fixed else ({0: torch.export.Dim("batch")},)
            torch.onnx.export(
                model, (example[: 1 if fixed else 2],), path, dynamo=True, input_names=["x"],
                dynamic_shapes=shapes, external_data=False, verbose=False,
            )  # fmt: skip
        else:
            axes = None if fixed else {"x": {0: "batch"}}
            torch.onnx.export(
                model, (example[:1],), path, dynamo=False, input_names=["x"], dynamic_axes=axes
            )
    return path


def run(path: Path | onnx.ModelProto, *inputs: Tensor, fixed: bool = False) -> list[Tensor]:
    """Return the outputs of a file in ONNX Runtime; a `fixed` one runs once per example."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    source = str(path) if isinstance(path, Path) else path.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    batches = zip(*(tensor.split(1) for tensor in inputs), strict=True) if fixed else [inputs]
    parts = [
        session.run(None, {name: t.numpy() for name, t in zip(names, batch, strict=True)})
        for batch in batches
    ]
    return [torch.from_numpy(np.concatenate(values)) for values in zip(*parts, strict=True)]


def outputs(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """Return the outputs of a network as a list."""
    with torch.no_grad():
        return [leaf for leaf in pytree.tree_leaves(model(*inputs)) if isinstance(leaf, Tensor)]


def difference(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the largest relative difference of outputs; infinite if shapes differ."""
    assert len(first) == len(second)
    return max(
        float((a - b).norm() / b.norm().clamp_min(1e-12)) if a.shape == b.shape else float("inf")
        for a, b in zip(first, second, strict=True)
    )


def described(file: onnx.ModelProto) -> dict[str, Any]:
    """Return what a smaller file must have in common with the original."""
    graph = file.graph
    return {
        "opset": [(item.domain, item.version) for item in file.opset_import],
        "ir": file.ir_version,
        "metadata": {item.key: item.value for item in file.metadata_props},
        "producer": (file.producer_name, file.producer_version, file.doc_string),
        "inputs": [value.SerializeToString() for value in graph.input],
        "outputs": [value.SerializeToString() for value in graph.output],
        "name": graph.name,
        "nodes": [(node.op_type, node.name, list(node.output)) for node in graph.node],
        "weights": sorted(item.name for item in graph.initializer),
    }

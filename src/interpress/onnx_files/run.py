"""Run files in ONNX Runtime."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from interpress.errors import CaptureError, DataError
from interpress.graph.example import Example
from interpress.onnx_files.library import onnx_runtime
from interpress.onnx_files.source import OnnxFile

Array = np.ndarray[Any, Any]


class Session:
    """A file in ONNX Runtime on the CPU."""

    def __init__(self, proto: Any, file: OnnxFile) -> None:
        self._file = file
        runtime = onnx_runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        self.threads = torch.get_num_threads()
        options.intra_op_num_threads = self.threads
        providers = ["CPUExecutionProvider"]
        network = _without_tail(proto, file)
        try:
            self._session = runtime.InferenceSession(
                network.SerializeToString(), options, providers=providers
            )
        except Exception as error:
            line = next(iter(str(error).splitlines()), "")
            raise CaptureError(
                f"ONNX Runtime cannot load {file.name} ({line}); update onnxruntime, or export the "
                "file again"
            ) from error
        self._names = {value.name for value in self._session.get_inputs()}

    def run(self, example: Example) -> list[Array]:
        """Return the values that the network returns, in its order."""
        outputs = list(self._file.outputs)
        try:
            parts = [self._session.run(outputs, feeds) for feeds in self._feeds(example)]
        except Exception as error:
            line = next(iter(str(error).splitlines()), "")
            raise DataError(
                f"ONNX Runtime cannot run {self._file.name} on the data ({line[:200]}); pass what "
                "the file takes"
            ) from error
        if len(parts) == 1 and self._file.fixed_batch is None:
            return list(parts[0])
        count, joined = len(example.tensors()[0]), zip(*parts, strict=True)
        return [np.concatenate(values)[:count] for values in joined]

    def seconds(self, example: Example) -> float:
        """Return how long the file takes for these examples."""
        outputs, feeds = list(self._file.outputs), self._feeds(example)
        start = time.perf_counter()
        for one in feeds:
            self._session.run(outputs, one)
        return time.perf_counter() - start

    def _feeds(self, example: Example) -> list[dict[str, Array]]:
        """Return the inputs by their names in the file, as often as it has to run.

        If the file takes n examples at a time, the last batch is filled with the last example.
        """
        arguments = dict(zip(self._file.inputs, example.args, strict=False)) | dict(example.kwargs)
        arrays = {
            self._file.inputs[argument]: tensor.detach().cpu().numpy()
            for argument, tensor in arguments.items()
            if self._file.inputs[argument] in self._names
        }
        size = self._file.fixed_batch
        if size is None:
            return [arrays]
        count = len(next(iter(arrays.values())))
        indices = np.minimum(np.arange(-(-count // size) * size), count - 1).reshape(-1, size)
        return [{name: a[index] for name, a in arrays.items()} for index in indices]


def _without_tail(proto: Any, file: OnnxFile) -> Any:
    """Return the file with what the network returns as its outputs."""
    names = [value.name for value in proto.graph.output]
    missing = [name for name in file.outputs if name not in names]
    if not missing:
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    for name in missing:
        copy.graph.output.add().name = name
    return copy

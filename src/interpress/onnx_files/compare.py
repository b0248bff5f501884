"""Compare networks with files: the read network with its file, and the written file with both."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from interpress.errors import CaptureError, StorageError
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.onnx_files.library import has_onnx_runtime
from interpress.onnx_files.run import Array, Session
from interpress.onnx_files.source import OnnxFile, source_of
from interpress.onnx_files.write import smaller_proto
from interpress.tables.text_table import counted

_SLACK = 100.0
"""A runtime adds in another order than PyTorch, and may round this many times as much."""
_RELATIVE, _RELATIVE_HALF = 1e-5, 1e-2  # errors that rounding always explains
_ABSOLUTE = 1e-6  # of one number: functions such as the sigmoid are computed to about that
_MOST_RUNS, _MOST_SECONDS = 99, 2.0  # when run times are measured


@dataclass(frozen=True)
class OnnxReport:
    """How a written file compares with the one that the original was read from."""

    error: float
    """Relative difference between the written file and the smaller network, by rounding."""
    output_error: float
    """Relative difference between the outputs of the two files; the largest of all outputs."""
    time: float
    """CPU time of the written file, divided by that of the original file; the median."""
    bytes: tuple[int, int]
    """Sizes of the original file and of the written one."""
    examples: int
    """How many examples both files ran on."""
    threads: int
    """With how many threads the run time was measured."""
    quartiles: tuple[float, float] | None = None
    """The lower and the upper quartile of the ratios whose median is `time`."""

    def __str__(self) -> str:
        before, after = self.bytes
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        return (
            f"ONNX Runtime, {counted(self.examples, 'example')}: error "
            f"{self.output_error:.3g} relative to the outputs of the original file, "
            f"run time {self.time:.2f} of the original's ({threads}), "
            f"file {after / 1e6:.1f} of {before / 1e6:.1f} MB"
        )


def check_reading(network: nn.Module, example: Example) -> float | None:
    """Return the relative error of a network that was read, compared with its file.

    Raise if it is larger than rounding explains. None if the network is not of a file, or ONNX
    Runtime is not installed.
    """
    file = source_of(network)
    if file is None or not isinstance(network, fx.GraphModule) or not has_onnx_runtime():
        return None
    batch = file.fixed_batch
    count = len(example.tensors()[0])
    other = example  # another number of examples than the file says
    if batch == count:
        other = example.map(lambda tensor: torch.cat([tensor, tensor[:1]]))
    try:
        _outputs(network, other)
    except Exception as failure:
        Session(file.proto, file).run(example)  # raises if the file does not take such examples
        if batch is None:
            raise
        raise _only_for(batch, file.name) from failure
    error, limit = _reading_error(network, file, other)
    if not error <= limit:
        if batch is not None:
            of_file = torch.arange(batch).clamp(max=count - 1)
            alone, allowed = _reading_error(network, file, example.map(lambda t: t[of_file]))
            if alone <= allowed:
                raise _only_for(batch, file.name)
        raise CaptureError(
            f"{file.name} was not read right: its outputs in ONNX Runtime and in PyTorch differ by "
            f"{error:.1g} of their size, and rounding explains {limit:.1g}; please report the "
            "file, and compress the PyTorch network that it was exported from"
        )
    return error


def _reading_error(
    network: fx.GraphModule, file: OnnxFile, example: Example
) -> tuple[float, float]:
    """Return the relative error of a network that was read, and what rounding explains."""
    outputs, expected = _outputs(network, example), Session(file.proto, file).run(example)
    return relative_error(outputs, expected), _limit(network, example, outputs)


def _only_for(batch: int, name: str) -> CaptureError:
    examples, other = ("one example", "more") if batch == 1 else (f"{batch} examples", "others")
    return CaptureError(
        f"{name} takes {examples} at a time, and its operators do not allow {other}; export it "
        "with a dynamic batch"
    )


def compare_files(original: nn.Module, smaller: nn.Module, example: Example) -> OnnxReport | None:
    """Return how the file of a smaller network compares with that of the original.

    Raise if it does not compute what the smaller network does. None if the original is not of a
    file, or ONNX Runtime is not installed.
    """
    file = source_of(original)
    if file is None or not has_onnx_runtime():
        return None
    assert isinstance(original, fx.GraphModule)
    assert isinstance(smaller, fx.GraphModule)
    proto = smaller_proto(original, smaller)
    sessions = Session(file.proto, file), Session(proto, file)
    expected = _outputs(smaller, example)
    before, after = (session.run(example) for session in sessions)
    error, limit = relative_error(expected, after), _limit(smaller, example, expected)
    if not error <= limit:
        raise StorageError(
            f"the file that was written differs from the smaller network by {error:.1g}, and "
            f"rounding explains {limit:.1g}; please report the file {file.name}"
        )
    ratios = _time_ratios(*sessions, example)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return OnnxReport(
        error=error,
        output_error=relative_error(before, after, absolute=0.0),
        time=median,
        bytes=(file.proto.ByteSize(), proto.ByteSize()),
        examples=len(example.tensors()[0]),
        threads=sessions[0].threads,
        quartiles=(low, high),
    )


def _time_ratios(original: Session, smaller: Session, example: Example) -> list[float]:
    """Return the ratios of run times; the two files run in turn, each first equally often."""
    for session in (original, smaller):
        session.seconds(example)  # the first run is slower
    ratios: list[float] = []
    start = time.perf_counter()
    while len(ratios) < 3 or (
        len(ratios) < _MOST_RUNS and time.perf_counter() - start < _MOST_SECONDS
    ):
        order = (original, smaller) if len(ratios) % 2 == 0 else (smaller, original)
        seconds = {session: session.seconds(example) for session in order}
        ratios.append(seconds[smaller] / seconds[original])
    return ratios


def _outputs(network: fx.GraphModule, example: Example) -> list[Array]:
    tensors = output_tensors(network, example.at_home(network))
    return [_array(tensor.detach().cpu()) for tensor in tensors]


def _array(tensor: Tensor) -> Array:
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _limit(network: fx.GraphModule, example: Example, outputs: Sequence[Array]) -> float:
    """Return the relative error that rounding explains: a multiple of PyTorch's own.

    That is the difference between the network and itself in double precision.
    """
    dtypes = {parameter.dtype for parameter in network.parameters()}
    floor = _RELATIVE_HALF if dtypes & {torch.float16, torch.bfloat16} else _RELATIVE
    try:
        exact = _outputs(copy.deepcopy(network).double(), example.map(_doubled))
        own = relative_error(exact, outputs, absolute=0.0)
    except Exception:  # a file may mix dtypes in a way that has no double precision
        return _SLACK * floor
    return max(floor, _SLACK * own)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def relative_error(
    reference: Sequence[Any], others: Sequence[Any], absolute: float = _ABSOLUTE
) -> float:
    """Return the largest relative difference of floating-point outputs, in the Frobenius norm.

    Differences of `absolute` per number are not counted.
    """
    errors = [0.0]
    for expected, actual in zip(reference, others, strict=True):
        a, b = np.asarray(expected), np.asarray(actual)
        if a.shape != b.shape:
            return float("inf")
        if not np.issubdtype(a.dtype, np.floating):
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        excess = max(0.0, float(np.linalg.norm(a - b)) - absolute * a.size**0.5)
        errors.append(excess / max(float(np.linalg.norm(a)), 1e-30) if excess else 0.0)
    return max(errors)

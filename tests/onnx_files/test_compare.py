"""Networks and files are compared, and what differs is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from tests.onnx_files.harness import case, model_from, model_of, rand, tensor_input

import interpress
from interpress.errors import CaptureError, DataError, StorageError
from interpress.graph.example import Example
from interpress.onnx_files import compare, registry
from interpress.onnx_files.call import Call
from interpress.onnx_files.compare import OnnxReport, check_reading, compare_files, relative_error
from interpress.onnx_files.read import read_onnx
from interpress.onnx_files.run import Session
from interpress.onnx_files.source import source_of


def layers() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(rand(6, 16), "w1"),
        numpy_helper.from_array(rand(16, 3, seed=1), "w2"),
    ]
    return model_from(nodes, [tensor_input("x", "n", 6)], ["y"], weights)


X = torch.from_numpy(rand(5, 6))


def test_relative_errors() -> None:
    a = np.array([3.0, 4.0])
    assert relative_error([a], [a]) == 0.0
    assert relative_error([a], [1.1 * a], absolute=0.0) == pytest.approx(0.1)
    assert relative_error([a, a], [a, 2 * a], absolute=0.0) == pytest.approx(1.0)
    assert relative_error([a], [a[:1]]) == float("inf")
    assert relative_error([a], [a + 1e-7]) == 0.0, "rounding of single numbers is not counted"
    assert relative_error([np.array([1, 2])], [np.array([3, 4])]) == 0.0, "whole numbers are not"


def test_a_network_that_was_read_right() -> None:
    error = check_reading(read_onnx(layers()), Example.of(X))
    assert error is not None
    assert error < 1e-6


def test_a_network_without_a_file_is_not_compared() -> None:
    assert check_reading(torch.nn.Linear(6, 2), Example.of(X)) is None
    assert compare_files(torch.nn.Linear(6, 2), torch.nn.Linear(6, 2), Example.of(X)) is None


def test_without_onnx_runtime_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "has_onnx_runtime", lambda: False)
    assert check_reading(read_onnx(layers()), Example.of(X)) is None


def test_an_operator_that_is_read_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.known_operators()

    def wrong(call: Call) -> object:
        return call.run(torch.tanh, call.tensor(0))

    monkeypatch.setitem(registry._OPERATORS, "Relu", wrong)
    with pytest.raises(CaptureError, match=r"was not read right.*please report the file"):
        interpress.compress(layers(), torch.from_numpy(rand(40, 6)), width=0.5)


def test_a_file_that_differs_from_its_network_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, other = read_onnx(layers()), read_onnx(layers())
    with torch.no_grad():
        other.w1 += 1.0
    report = compare_files(original, other, Example.of(X))
    assert report is not None
    assert report.error < 1e-5
    assert report.output_error > 0.01
    monkeypatch.setattr(compare, "smaller_proto", lambda *_: layers())  # not what was changed
    with pytest.raises(StorageError, match="differs from the smaller network"):
        compare_files(original, other, Example.of(X))


def test_the_report_says_what_was_measured() -> None:
    report = OnnxReport(1e-7, 0.0123, 0.71, (10_000_000, 6_000_000), 40, 1)
    assert str(report) == (
        "ONNX Runtime, 40 examples: error 0.0123 relative to the outputs of the original file, "
        "run time 0.71 of the original's "
        "(1 thread), file 6.0 of 10.0 MB"
    )


def test_a_file_with_several_outputs_that_ends_with_other_operators() -> None:
    model = layers()
    model.graph.node.append(helper.make_node("Hardmax", ["y"], ["classes"]))
    model.graph.output[0].name = "classes"
    network = read_onnx(model)
    file = source_of(network)
    assert file is not None
    (scores,) = Session(model, file).run(Example.of(X))
    assert scores == pytest.approx(network(X).detach().numpy(), rel=1e-4, abs=1e-5)


def test_one_example_at_a_time() -> None:
    model = model_of(case("Relu", rand(1, 6)))
    network = read_onnx(model)
    file = source_of(network)
    assert file is not None
    (together,) = Session(model, file).run(Example.of(X))
    assert together.shape == (5, 6)
    assert Session(model, file).seconds(Example.of(X)) > 0


def test_data_that_do_not_fit_are_refused() -> None:
    model = layers()
    file = source_of(read_onnx(model))
    assert file is not None
    with pytest.raises(DataError, match=r"cannot run .* on the data .*pass what the file takes"):
        Session(model, file).run(Example.of(torch.rand(2, 7)))


def test_a_file_that_onnx_runtime_does_not_know(tmp_path: Path) -> None:
    model = layers()
    file = source_of(read_onnx(model))
    assert file is not None
    model.graph.node[1].op_type = "Unheard"
    with pytest.raises(CaptureError, match="ONNX Runtime cannot load"):
        Session(model, file)

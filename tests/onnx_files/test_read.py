"""Files that are read, and files that are refused with a remedy."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tests.onnx_files.exported import EXPORTERS, export
from tests.onnx_files.harness import (
    assert_equal,
    model_from,
    rand,
    run_file,
    run_network,
    tensor_input,
)
from torch import nn

import interpress
from interpress.errors import ArgumentError, CaptureError, StorageError
from interpress.onnx_files.read import is_onnx, read_onnx
from interpress.onnx_files.source import source_of

WEIGHT = numpy_helper.from_array(rand(4, 3, 3, 3), "conv.weight")
X = tensor_input("x", "n", 3, 8, 8)


def conv_file() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight"], ["h"], name="conv"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    return model_from(nodes, [X], ["y"], [WEIGHT])


def quantised() -> onnx.ModelProto:
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "s")
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["q"])
    back = helper.make_node("DequantizeLinear", ["q", "s"], ["y"])
    return model_from([node, back], [X], ["y"], [scale])


def sparse() -> onnx.ModelProto:
    model = conv_file()
    values = helper.make_tensor("m", TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("i", TensorProto.INT64, [1], [2])
    item = helper.make_sparse_tensor(values, places, [3])
    model.graph.sparse_initializer.append(item)
    return model


def with_functions() -> onnx.ModelProto:
    model = conv_file()
    body = [helper.make_node("Relu", ["a"], ["b"])]
    own = helper.make_function("own", "Mine", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model.functions.append(own)
    return model


def with_a_branch() -> onnx.ModelProto:
    model = conv_file()
    flag = numpy_helper.from_array(np.array(True), "flag")
    bodies = [
        helper.make_graph([helper.make_node(kind, ["h"], [f"{kind}_out"])], kind, [],
                          [tensor_input(f"{kind}_out", "n", 4, 6, 6)])
        for kind in ("Relu", "Tanh")
    ]  # fmt: skip
    branch = helper.make_node(
        "If", ["flag"], ["z"], name="choice", then_branch=bodies[0], else_branch=bodies[1]
    )
    layer = helper.make_node("Conv", ["z", "w2"], ["y"], name="last")
    w2 = numpy_helper.from_array(rand(2, 4, 1, 1), "w2")
    return model_from([model.graph.node[0], branch, layer], [X], ["y"], [WEIGHT, flag, w2])


def of_a_vendor() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Secret", ["x"], ["h"], domain="com.vendor", name="secret"),
        helper.make_node("Conv", ["h", "conv.weight"], ["y"], name="conv"),
    ]
    return model_from(nodes, [X], ["y"], [WEIGHT], domain="com.vendor")


def unsorted() -> onnx.ModelProto:
    model = conv_file()
    nodes = list(reversed(model.graph.node))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def of_constants() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["conv.weight"], ["y"])]
    return model_from(nodes, [X], ["y"], [WEIGHT])


REFUSED: list[tuple[Callable[[], onnx.ModelProto], str]] = [
    (quantised, r"quantised \(1 QuantizeLinear, 1 DequantizeLinear\); compress the floating"),
    (sparse, "sparse weights; export it with dense ones"),
    (with_functions, r"onnx.inliner.inline_local_functions\(model\)"),
    (with_a_branch, r"before the layer at 'last': If \(1x, first at 'choice': it holds graphs"),
    (of_a_vendor, r"com.vendor.Secret \(1x, first at 'secret': interpress has no function"),
    (unsorted, "Relu at 'relu' reads 'h', which nothing in front of it computes"),
    (lambda: model_from([], [X], []), "holds no operators"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_refused_with_a_remedy(build: Callable[[], onnx.ModelProto], message: str) -> None:
    with pytest.raises((CaptureError, StorageError), match=message):
        read_onnx(build())


def test_a_file_that_ends_with_what_cannot_be_read_keeps_it() -> None:
    model = conv_file()
    model.graph.node.append(helper.make_node("Hardmax", ["y"], ["classes"], name="end"))
    model.graph.output[0].name = "classes"
    network = read_onnx(model)
    source = source_of(network)
    assert source is not None
    assert source.kept == ("1 Hardmax",)
    assert source.outputs == ("y",)
    x = rand(2, 3, 8, 8)
    assert torch.equal(
        network(torch.from_numpy(x)),
        torch.relu(torch.nn.functional.conv2d(torch.from_numpy(x), network.conv.weight)),
    )


def test_a_file_that_returns_a_shape_keeps_that_shape() -> None:
    model = conv_file()
    model.graph.node.append(helper.make_node("Shape", ["h"], ["s"]))
    model.graph.output.append(onnx.ValueInfoProto(name="s"))
    source = source_of(read_onnx(model))
    assert source is not None
    assert source.outputs == ("y", "h")


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_parameters_have_the_names_of_the_source(exporter: str, tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    file = export(layers.eval(), torch.rand(2, 3, 8, 8), tmp_path / "a.onnx", exporter)
    network = read_onnx(file)
    assert {n: tuple(p.shape) for n, p in network.named_parameters()} == {
        n: tuple(p.shape) for n, p in layers.named_parameters()
    }
    assert not network.training


def test_weights_that_are_listed_among_the_inputs() -> None:
    """Files of the first versions of ONNX list them there."""
    model = conv_file()
    model.graph.input.append(tensor_input("conv.weight", 4, 3, 3, 3))
    feeds = {"x": rand(2, 3, 8, 8)}
    assert_equal(run_network(model, feeds), run_file(conv_file(), feeds))


def test_weights_in_constant_nodes() -> None:
    values = [
        ("value", numpy_helper.from_array(rand(3, 1), "v")),
        ("value_float", 0.5),
        ("value_floats", [1.0, 2.0, 3.0]),
    ]
    for name, value in values:
        nodes = [
            helper.make_node("Constant", [], ["c"], **{name: value}),
            helper.make_node("Mul", ["x", "c"], ["y"]),
        ]
        model = model_from(nodes, [tensor_input("x", "n", 3, 3)], ["y"])
        feeds = {"x": rand(2, 3, 3)}
        assert_equal(run_network(model, feeds), run_file(model, feeds))


def test_equal_biases_that_a_file_holds_once_belong_to_separate_layers(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.ReLU(),
                           nn.Upsample(scale_factor=2), nn.Conv2d(6, 6, 1), nn.ReLU(),
                           nn.Conv2d(6, 4, 1))  # fmt: skip
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.bias)
    x = torch.rand(40, 3, 4, 4)
    file = export(layers.eval(), x, tmp_path / "a.onnx", "torchscript")
    nodes = onnx.load(file).graph.node
    assert "Identity" in [node.op_type for node in nodes]
    assert any("" in node.input for node in nodes), "an input that is left out has an empty name"
    network = read_onnx(file)
    assert len(interpress.find_spaces(network, x[:2]).shrinkable) == 3
    result = interpress.compress(file, x, flops=0.6)
    result.save_onnx(tmp_path / "b.onnx")
    onnx.checker.check_model(tmp_path / "b.onnx", full_check=True)
    assert result.onnx is not None
    assert result.onnx.error < 1e-5


def test_norms_without_parameters_that_share_their_ones_and_zeros() -> None:
    """Of a norm that is not affine, exporters write ones and zeros, once for all layers."""
    constants = {
        "w1": rand(8, 3, 1, 1), "w2": rand(8, 8, 1, 1, seed=1), "w3": rand(4, 8, 1, 1, seed=2),
        "ones": np.ones(8, np.float32), "zeros": np.zeros(8, np.float32),
    }  # fmt: skip
    norm = ["ones", "zeros", "zeros", "ones"]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("BatchNormalization", ["a", *norm], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("BatchNormalization", ["d", *norm], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "w3"], ["y"]),
    ]
    items = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = model_from(nodes, [X], ["y"], items)
    x = torch.from_numpy(rand(40, 3, 8, 8))
    assert len(interpress.find_spaces(read_onnx(model), x[:2]).shrinkable) == 2
    result = interpress.compress(model, x, flops=0.6)
    assert len({space.after for space in result.plan}) == 2
    assert result.onnx is not None
    assert result.onnx.error < 1e-5


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a file; give the path"):
        read_onnx(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("this is no network")
    with pytest.raises(StorageError, match="cannot be read as ONNX"):
        read_onnx(tmp_path / "text.onnx")
    data = conv_file().SerializeToString()
    (tmp_path / "half.onnx").write_bytes(data[: len(data) // 2])
    with pytest.raises(StorageError, match="cannot be read as ONNX"):
        read_onnx(tmp_path / "half.onnx")


def test_external_data_is_read_and_missing_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        conv_file(), path, save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    assert torch.equal(read_onnx(path).conv.weight, torch.from_numpy(rand(4, 3, 3, 3)))
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(StorageError, match="keep files of external data beside it"):
        read_onnx(path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ArgumentError, match=r"pip install 'interpress\[onnx\]'"):
        read_onnx("model.onnx")


def test_what_counts_as_a_file() -> None:
    assert is_onnx("a/b.onnx")
    assert is_onnx(Path("b.ONNX"))
    assert is_onnx(conv_file())
    assert not is_onnx("b.pt2")
    assert not is_onnx(nn.Linear(1, 1))

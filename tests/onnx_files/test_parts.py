"""Names, sizes, shapes and the registry, which the other modules are made of."""

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from tests.onnx_files.harness import model_from, rand, tensor_input
from torch import nn

from interpress.onnx_files.names import identifier, parameter_name, register
from interpress.onnx_files.registry import find_operator, known_operators, on_sizes, operator
from interpress.onnx_files.shapes import Shapes
from interpress.onnx_files.sizes import FileInt, Place, at, places_in, plain


@pytest.mark.parametrize(
    ("value", "node", "position", "name"),
    [
        ("layer1.conv1.weight", "/layer1/conv1/Conv", 1, "layer1.conv1.weight"),
        ("onnx::Conv_123", "/layer1/conv1/Conv", 1, "layer1.conv1.weight"),
        ("onnx::Conv_124", "/layer1/conv1/Conv", 2, "layer1.conv1.bias"),
        ("onnx::Conv_125", "/layer1/layer1.0/conv1/Conv", 1, "layer1.0.conv1.weight"),
        ("val_7", "node_linear", 1, "val_7"),
        ("12", "", 1, "12"),
        ("a/b:0", "", 1, "a.b_0"),
        ("...", "", 1, "constant"),
    ],
)
def test_names_of_parameters(value: str, node: str, position: int, name: str) -> None:
    assert parameter_name(value, node, position) == name


def test_arguments_are_names_of_python() -> None:
    taken: set[str] = set()
    names = ["images", "images", "input.1", "1x", "lambda", "..."]
    made = [identifier(name, taken) for name in names]
    assert made == ["images", "images_2", "input_1", "_1x", "lambda_2", "_"]
    assert all(name.isidentifier() for name in made)


def test_parameters_get_names_that_are_free() -> None:
    root = nn.Module()
    one, two = nn.Parameter(torch.zeros(1)), torch.zeros(2)
    assert register(root, "a.weight", one) == "a.weight"
    assert register(root, "a.weight", two) == "a.weight_2"
    assert register(root, "forward", two) == "forward_2", "a method of the module"
    assert register(root, "a", two) == "a_2", "a module"
    assert root.get_parameter("a.weight") is one
    assert root.get_buffer("a.weight_2") is two


def test_integers_know_their_place() -> None:
    place = Place(3, "split", 1)
    number = FileInt(7, place)
    nested = ([1, number], {"dim": number})
    assert number == 7
    assert list(places_in(nested)) == [((0, 1), place), ((1, "dim"), place)]
    assert plain(nested) == ([1, 7], {"dim": 7})
    assert type(plain(nested)[0][1]) is int
    assert at(nested, (1, "dim")) == 7


def test_the_registry() -> None:
    names = known_operators()
    assert names == sorted(names)
    assert {"Conv", "Gemm", "com.microsoft.Gelu"} <= set(names)
    assert find_operator("Nonsense", []) is None
    with pytest.raises(ValueError, match="Relu is registered already"):
        operator("Relu")(lambda call: None)
    with pytest.raises(ValueError, match="Concat is registered already"):
        on_sizes("Concat")(lambda call: None)


def test_sizes_and_data_have_functions_of_their_own() -> None:
    sizes, tensor = np.empty(2, dtype=object), torch.zeros(2)
    assert find_operator("Concat", [sizes, tensor]) is not find_operator("Concat", [tensor])
    assert find_operator("Gather", [tensor, sizes]) is find_operator("Gather", [tensor, tensor])
    assert find_operator("Gather", [sizes, tensor]) is not find_operator("Gather", [tensor, tensor])


def test_shapes_are_inferred_with_constants_that_nodes_compute() -> None:
    nodes = [
        helper.make_node("Add", ["two", "two"], ["four"]),
        helper.make_node("Slice", ["x", "zero", "four", "one"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([number]), name)
        for number, name in enumerate(("zero", "one", "two"))
    ]
    weight = numpy_helper.from_array(rand(50, 60), "w")
    model = model_from(nodes, [tensor_input("x", "n", 9, 50)], ["z"], [*constants, weight])
    shapes = Shapes(model, {})
    assert shapes.shape("x") == (None, 9, 50)
    assert shapes.shape("w") == (50, 60)
    assert shapes.element_type("w") == 1
    assert shapes.shape("y") in (None, (None, None, 50), (None, None, None))
    shapes.note_constant("four", torch.tensor([4]))
    assert shapes.shape("y") == (None, 4, 50)
    assert shapes.shape("z") == (None, 4, 60)
    assert Shapes(model, {"y": (1, 2, 3)}).shape("y") == (1, 2, 3)
    assert len(model.graph.initializer) == 4, "the file itself is not changed"


def test_ranks_are_noted() -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["h"], domain="com.vendor"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    model = model_from(nodes, [tensor_input("x", 2, 3)], ["y"], domain="com.vendor")
    shapes = Shapes(model, {})
    assert shapes.shape("h") is None
    shapes.note_rank("h", 3)
    assert shapes.shape("h") == (None, None, None)
    assert shapes.shape("y") == (None, None, None)

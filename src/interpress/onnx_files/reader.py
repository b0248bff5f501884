"""`Reader`: turns the nodes of a file, one after the other, into nodes of an `fx.Graph`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from interpress.errors import StorageError
from interpress.onnx_files.call import Call, NotReadable, is_small
from interpress.onnx_files.library import onnx_library
from interpress.onnx_files.names import parameter_name, register
from interpress.onnx_files.registry import find_operator
from interpress.onnx_files.shapes import Shapes
from interpress.onnx_files.sizes import FileInt, Path, Place, places_in, plain

_TENSOR, _GRAPHS = 4, (5, 10)  # AttributeProto.TENSOR, GRAPH and GRAPHS


@dataclass(frozen=True)
class Unread:
    """Why a node is not part of the network."""

    operator: str
    node: str
    reason: str


class _Tracer(fx.Tracer):
    """Notes where the integers among the arguments of a node come from."""

    def __init__(self, sizes: dict[tuple[str, Path], Place]) -> None:
        super().__init__()
        self._sizes = sizes

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any) -> Any:
        proxy = super().create_proxy(kind, target, plain(args), plain(kwargs), *more)
        for path, place in places_in((args, kwargs)):
            self._sizes[proxy.node.name, path] = place
        return proxy


class Reader:
    """The state while a file is read: the values by name, and the graph that is built."""

    def __init__(
        self, proto: Any, shapes: Mapping[str, tuple[int, ...]] | None = None, batch: int = 1
    ) -> None:
        """Prepare to read; with the shapes of the values for a batch size, any other is allowed."""
        self.proto = proto
        self.root = nn.Module()
        self.sizes: dict[tuple[str, Path], Place] = {}
        self.weights: dict[str, str] = {}
        """Names of parameters and buffers, to names of values in the file."""
        self.unread: dict[int, Unread] = {}
        """Nodes that are not part of the network, by their index."""
        self.flexible = shapes is not None
        """Whether the batch size of the file is read as any batch size."""
        self._batch = batch
        self._tracer = _Tracer(self.sizes)
        self._tracer.root = self.root
        self.graph = self._tracer.graph = fx.Graph(tracer_cls=fx.Tracer)
        self.readers: dict[str, int] = {}
        """Parameters that share a value of the file, to the one node that reads each."""
        self._proxies: dict[tuple[str, int | None], fx.Proxy] = {}
        self.values: dict[str, Any] = {item.name: _tensor(item) for item in proto.graph.initializer}
        self._aliases: dict[str, str] = {}
        self._known = Shapes(proto, shapes or {})
        domains = {item.domain: item.version for item in proto.opset_import}
        self.opset = domains.get("", domains.get("ai.onnx", 1))
        self._uses = Counter(name for node in proto.graph.node for name in node.input)
        self._uses.update(output.name for output in proto.graph.output)

    def add_input(self, name: str, argument: str) -> None:
        """Add an argument of the network."""
        self.values[name] = self._tracer.create_proxy("placeholder", argument, (), {})

    def output(self, name: str) -> fx.Node:
        """Return the node of a value that the network returns."""
        value = self.values[name]
        if isinstance(value, Tensor):  # the file returns a constant
            value = self._weight_of("", "", 0)(name, value, True)
        assert isinstance(value, fx.Proxy)
        return value.node

    def add_node(self, index: int, node: Any) -> None:
        """Read one node; if that is not possible, note why, and the nodes that depend on it."""
        inputs = [self._value(node, name) if name else None for name in node.input]
        try:
            results = self._results(index, node, inputs)
        except NotReadable as problem:
            name = node.name or node.output[0]
            domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
            self.unread[index] = Unread(domain + node.op_type, name, str(problem))
            results = []
        for position, name in enumerate(node.output):
            known = position < len(results)
            self.values[name] = results[position] if known else self._unread_output(index, node)

    def _unread_output(self, index: int, node: Any) -> Unread:
        """Return why an output of a node is not known: of all of them, or of one."""
        name = node.name or node.output[0]
        return self.unread.get(index) or Unread(node.op_type, name, "this output is not computed")

    def _value(self, node: Any, name: str) -> Any:
        if name not in self.values:
            raise StorageError(
                f"{node.op_type} at {node.name or node.output[0]!r} reads {name!r}, which nothing "
                "in front of it computes; the file is damaged, so export it again"
            )
        return self.values[name]

    def _results(self, index: int, node: Any, inputs: list[Any]) -> list[Any]:
        before = next((value for value in inputs if isinstance(value, Unread)), None)
        if before is not None:
            raise NotReadable(f"it reads what {before.operator} at {before.node!r} computes")
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            return [_constant(node)]
        if node.op_type == "Identity" and isinstance(inputs[0], Tensor):
            # exporters write equal biases once, which must not make their layers equally wide
            if inputs[0].ndim > 1:
                source = node.input[0]
                self._aliases[node.output[0]] = self._aliases.get(source, source)
            return inputs
        if any(attribute.type in _GRAPHS for attribute in node.attribute):
            raise NotReadable("it holds graphs that run or not, depending on values")
        name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        function = find_operator(name, inputs)
        if function is None:
            raise NotReadable("interpress has no function for it")
        try:
            result = function(self._call(index, node, inputs))
        except NotReadable:
            raise
        except Exception as error:  # attributes and shapes that the operator does not allow
            line = next(iter(str(error).splitlines()), "")
            raise NotReadable(f"{type(error).__name__}: {line}") from error
        if isinstance(result, fx.Proxy):
            if result.node.target is torch.ops.aten.reshape.default:
                sizes: Any = result.node.args[1]
                self._known.note_rank(node.output[0], len(sizes))
            if result.node.target is torch.ops.aten.sym_numel.default:
                result = _array_of(result)
        elif isinstance(result, Tensor):
            self._known.note_constant(node.output[0], result)
        return result if isinstance(result, list) else [result]

    def _call(self, index: int, node: Any, inputs: list[Any]) -> Call:
        constants = [value for value in inputs if value is not None]
        folds = all(isinstance(value, Tensor) and is_small(value) for value in constants)
        return Call(
            node=node,
            index=index,
            inputs=self._with_free_batch(index, node, inputs),
            attributes={item.name: _attribute(item) for item in node.attribute},
            opset=self.opset,
            folds=folds,
            shape_of=self._known.shape,
            type_of=self._known.element_type,
            as_weight=self._weight_of(node.op_type, node.name, index),
            record=lambda function, args, kwargs: self._tracer.create_proxy(
                "call_function", function, args, kwargs
            ),
            is_single_use=lambda name: self._uses[name] == 1,
        )

    def _with_free_batch(self, index: int, node: Any, inputs: list[Any]) -> list[Any]:
        """Return the inputs of a node without the batch size that they say."""
        if not self.flexible:
            return inputs
        if node.op_type == "Reshape" and len(inputs) == 2:
            return self._with_free_shape(index, node, inputs)
        if node.op_type == "Concat":
            return self._with_repeated_constants(index, node, inputs)
        return inputs

    def _with_free_shape(self, index: int, node: Any, inputs: list[Any]) -> list[Any]:
        """Replace the batch size of the file, such as a leading 1, in the shape of a Reshape.

        The size of the batch that arrives takes its place.
        """
        x, shape = inputs
        known = self._known.shape(node.input[0])
        if not isinstance(shape, Tensor) or not isinstance(x, fx.Proxy) or not known:
            return inputs
        if known[0] != self._batch or shape.numel() < 2 or int(shape[0]) != self._batch:
            return inputs
        places = (Place(index, 1, position) for position in range(shape.numel()))
        sizes = np.empty(shape.numel(), dtype=object)
        for position, (number, place) in enumerate(zip(shape.tolist(), places, strict=True)):
            sizes[position] = FileInt(number, place)
        sizes[0] = self._batch_size(x)
        return [x, sizes]

    def _with_repeated_constants(self, index: int, node: Any, inputs: list[Any]) -> list[Any]:
        """Repeat constants that are joined with one example, such as a class token."""
        shapes = [self._known.shape(name) or () for name in node.input]
        axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
        is_first = any(axis in (0, -len(shape)) for shape in shapes)
        if is_first or self._batch != 1 or any(shape[:1] != (1,) for shape in shapes):
            return inputs
        data = [value for value in inputs if isinstance(value, fx.Proxy) and self._is_data(value)]
        repeated = []
        for name, value, shape in zip(node.input, inputs, shapes, strict=True):
            if not data or any(value is other for other in data):
                repeated.append(value)
                continue
            if isinstance(value, Tensor):
                value = self._weight_of(node.op_type, node.name, index)(name, value, False)
            sizes = [self._batch_size(data[0]), *[-1] * (len(shape) - 1)]
            repeated.append(
                self._tracer.create_proxy(
                    "call_function", torch.ops.aten.expand.default, (value, sizes), {}
                )
            )
        return repeated

    def _batch_size(self, x: fx.Proxy) -> fx.Proxy:
        return self._tracer.create_proxy("call_function", torch.ops.aten.sym_size.int, (x, 0), {})

    def _is_data(self, value: fx.Proxy) -> bool:
        """Return whether a value depends on the inputs of the network."""
        waiting, seen = [value.node], set()
        while waiting:
            node = waiting.pop()
            if node.op == "placeholder":
                return True
            if node not in seen:
                seen.add(node)
                waiting += node.all_input_nodes
        return False

    def _weight_of(self, operator: str, node: str, index: int) -> Any:
        """Return a function that registers a constant of a node in the network."""

        def as_weight(value: str, constant: Tensor, buffer: bool) -> fx.Proxy:
            value = self._aliases.get(value, value)
            # exporters write equal vectors once, which must not make their layers equally wide
            is_shared = bool(operator) and self._uses[value] > 1
            shares = is_shared and constant.ndim == 1 and constant.is_floating_point()
            key = (value, index if shares else None)
            if key not in self._proxies:
                nodes = self.proto.graph.node
                inputs = [self._aliases.get(name, name) for name in nodes[index].input]
                inputs = inputs if operator else [value]
                wanted = parameter_name(value, node, inputs.index(value))
                trained = constant.is_floating_point() and not buffer
                own = constant.clone() if shares else constant
                name = register(self.root, wanted, nn.Parameter(own) if trained else own)
                self.weights[name] = value
                if shares:
                    self.readers[name] = index
                self._proxies[key] = self._tracer.create_proxy("get_attr", name, (), {})
            return self._proxies[key]

        return as_weight


def _array_of(proxy: fx.Proxy) -> np.ndarray[Any, Any]:
    array = np.empty((), dtype=object)
    array[()] = proxy
    return array


def _tensor(item: Any) -> Tensor:
    """Return a tensor of the file, in memory of its own."""
    numpy_helper = onnx_library().numpy_helper
    array = np.array(numpy_helper.to_array(item))
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array)


def _constant(node: Any) -> Tensor:
    for attribute in node.attribute:
        value = _attribute(attribute)
        if attribute.name == "value":
            return value
        if attribute.name in ("value_float", "value_floats"):
            return torch.tensor(value, dtype=torch.float32)
        if attribute.name in ("value_int", "value_ints"):
            return torch.tensor(value, dtype=torch.int64)
    raise NotReadable("it holds no numbers")


def _attribute(item: Any) -> Any:
    onnx = onnx_library()
    if item.type in _GRAPHS:
        return None
    value = onnx.helper.get_attribute_value(item)
    if item.type == _TENSOR:
        return _tensor(value)
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if not isinstance(value, int | float | str) else value

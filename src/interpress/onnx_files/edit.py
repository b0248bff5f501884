"""`FileEdit`: changes of weights and sizes in a copy of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interpress.onnx_files.library import onnx_library, onnx_part
from interpress.onnx_files.sizes import Place

_CONSTANT_VALUES = ("value", "value_float", "value_floats", "value_int", "value_ints")


class FileEdit:
    """A copy of a file that is being changed; values and nodes are named as in the original."""

    def __init__(self, proto: Any) -> None:
        onnx = onnx_library()
        self._original = proto
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(proto)
        self._graph = self._proto.graph
        self._nodes = list(self._graph.node)  # by the index in the original
        self._lists: dict[tuple[int, int], list[int]] = {}
        self._splits: dict[int, list[int]] = {}

    def set_value(self, name: str, tensor: Tensor) -> None:
        """Set a weight: an initializer, or the value of a node that makes a constant."""
        item = self._item(name, tensor)
        for position, initializer in enumerate(self._graph.initializer):
            if initializer.name == name:
                self._graph.initializer[position].CopyFrom(item)
                break
        else:
            self._replace_node(name, item)
        for value in self._graph.input:  # files of old versions list weights among the inputs
            if value.name == name:
                dims = value.type.tensor_type.shape.dim
                for dim, size in zip(dims, tensor.shape, strict=True):
                    dim.dim_value = size

    def set_input(self, index: int, name: str, tensor: Tensor) -> None:
        """Set a weight for one of the nodes that read it; the others keep the old one."""
        new = self._new_name(name)
        self._graph.initializer.append(self._item(new, tensor))
        inputs = self._nodes[index].input
        for position, value in enumerate(inputs):
            if value == name:
                inputs[position] = new

    def set_size(self, place: Place, number: int) -> None:
        """Set an integer, in an attribute or in an input of a node."""
        node = self._nodes[place.node]
        if isinstance(place.argument, str):
            self._set_attribute(node, place, number)
            return
        key = (place.node, place.argument)
        if key not in self._lists:
            self._lists[key] = self._numbers(node.input[place.argument])
        self._lists[key][place.index] = number

    def _set_attribute(self, node: Any, place: Place, number: int) -> None:
        attribute = next((item for item in node.attribute if item.name == place.argument), None)
        if attribute is None:  # a Split that has no sizes yet
            sizes = self._splits.setdefault(place.node, [0] * len(node.output))
            sizes[place.index] = number
        elif attribute.ints:
            attribute.ints[place.index] = number
        else:
            attribute.i = number

    def _write_splits(self) -> None:
        """Add the sizes to nodes that split into equal parts before."""
        onnx = onnx_library()
        versions = {item.domain: item.version for item in self._proto.opset_import}
        for index, sizes in self._splits.items():
            node = self._nodes[index]
            if versions.get("", 0) < 13:
                node.attribute.append(onnx.helper.make_attribute("split", sizes))
                continue
            name = self._new_name(f"{node.output[0]}_split")
            self._graph.initializer.append(self._item(name, torch.tensor(sizes)))
            del node.input[1:]
            node.input.append(name)
            kept = [item for item in node.attribute if item.name != "num_outputs"]
            del node.attribute[:]
            node.attribute.extend(kept)

    def finished(self) -> Any:
        """Return the changed file."""
        self._write_splits()
        for (index, argument), numbers in self._lists.items():
            node = self._nodes[index]
            name = node.input[argument]
            if self._uses()[name] > 1:  # the other nodes keep the old numbers
                new = self._new_name(name)
                self._graph.initializer.append(self._item(new, self._tensor(name)))
                node.input[argument] = name = new
            old = self._tensor(name)
            self.set_value(name, torch.tensor(numbers, dtype=old.dtype).reshape(old.shape))
        self._remove_unused()
        self._update_shapes()
        return self._proto

    def _new_name(self, name: str) -> str:
        names = {value.name for value in self._graph.initializer}
        names.update(name for node in self._graph.node for name in [*node.input, *node.output])
        while name in names:
            name += "_smaller"
        return name

    def _uses(self) -> Counter[str]:
        """Return how often every value is read, in graphs inside of nodes too."""
        uses = Counter(_read_in(self._graph))
        uses.update(value.name for value in self._graph.output)
        return uses

    def _item(self, name: str, tensor: Tensor) -> Any:
        """Return a tensor as it is stored in a file."""
        onnx = onnx_library()
        if tensor.dtype == torch.bfloat16:
            numbers = tensor.float().numpy()
            return onnx.helper.make_tensor(
                name, onnx.TensorProto.BFLOAT16, tensor.shape, numbers.reshape(-1)
            )
        return onnx.numpy_helper.from_array(np.ascontiguousarray(tensor.numpy()), name)

    def _replace_node(self, name: str, item: Any) -> None:
        """Set the value of the node that makes a constant, or replace a node that computes it."""
        onnx = onnx_library()
        node = next(node for node in self._graph.node if name in node.output)
        if node.op_type == "Constant":
            for attribute in list(node.attribute):
                if attribute.name in _CONSTANT_VALUES:
                    node.attribute.remove(attribute)
            node.attribute.append(onnx.helper.make_attribute("value", item))
            return
        node.output[list(node.output).index(name)] = ""
        self._graph.initializer.append(item)

    def _numbers(self, name: str) -> list[int]:
        return [int(number) for number in self._tensor(name).reshape(-1).tolist()]

    def _tensor(self, name: str) -> Tensor:
        """Return a constant of the file."""
        onnx = onnx_library()
        for initializer in self._graph.initializer:
            if initializer.name == name:
                return torch.from_numpy(np.array(onnx.numpy_helper.to_array(initializer)))
        node = next(node for node in self._graph.node if name in node.output)
        if node.op_type == "Constant":
            value = onnx.helper.get_attribute_value(node.attribute[0])
            if isinstance(value, onnx.TensorProto):
                return torch.from_numpy(np.array(onnx.numpy_helper.to_array(value)))
            return torch.tensor(value, dtype=torch.int64)
        return self._computed(name)

    def _computed(self, name: str) -> Tensor:
        """Return a constant that nodes of the file compute from others."""
        extracted = onnx_part("utils").Extractor(self._proto).extract_model([], [name])
        (value,) = onnx_part("reference").ReferenceEvaluator(extracted).run(None, {})
        return torch.from_numpy(np.array(value))

    def _remove_unused(self) -> None:
        """Remove nodes that computed what is a constant now."""
        uses, before = self._uses(), {value.name for value in self._original.graph.initializer}
        were_used = set(_read_in(self._original.graph))
        for node in reversed(list(self._graph.node)):
            is_used = any(name and uses[name] for name in node.output)
            if not is_used and (were_used & set(node.output) or not any(node.output)):
                uses.subtract(node.input)
                self._graph.node.remove(node)
        for value in list(self._graph.initializer):
            if not uses[value.name] and value.name not in before:
                self._graph.initializer.remove(value)

    def _update_shapes(self) -> None:
        """Infer the shapes of all values between the nodes again, if the file had them."""
        if not self._graph.value_info:
            return
        onnx = onnx_library()
        typed = [value for value in self._graph.value_info if not _is_shaped(value)]
        del self._graph.value_info[:]
        self._graph.value_info.extend(typed)
        try:
            inferred = onnx.shape_inference.infer_shapes(self._proto)
        except Exception:  # more than 2 GB, or operators that onnx does not know
            return
        known = {value.name for value in self._original.graph.value_info}
        self._graph.value_info.extend(
            value
            for value in inferred.graph.value_info
            if value.name in known and _is_shaped(value)
        )


def _read_in(graph: Any) -> Iterator[str]:
    """Yield the names of the values that the nodes of a graph read."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from _read_in(inner)


def _is_shaped(value: Any) -> bool:
    return bool(value.type.tensor_type.HasField("shape"))

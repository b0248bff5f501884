"""Write a smaller network into the file that the original was read from.

The file is edited, not exported again: weights get their new values, and sizes such as those of a
Reshape or a Split their new numbers. Names, opset, metadata and dynamic axes stay, and so do the
operators that are not part of the network.
"""

from __future__ import annotations

import os
import shutil
import uuid
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.errors import ArgumentError, StorageError
from interpress.files.tensor_file import target_path
from interpress.onnx_files.edit import FileEdit
from interpress.onnx_files.library import onnx_library
from interpress.onnx_files.sizes import IMPLIED, Place, at
from interpress.onnx_files.source import OnnxFile, source_of

_LARGEST = 2**31 - 2**20  # bytes of a file of protobuf; more goes into a second file


def smaller_proto(original: fx.GraphModule, smaller: fx.GraphModule) -> Any:
    """Return the file of the original, as an `onnx.ModelProto`, with the smaller network in it."""
    file = source_of(original)
    assert file is not None
    edit = FileEdit(file.proto)
    before, after = _tensors(original), _tensors(smaller)
    for name in file.weights:
        if name not in after:
            raise StorageError(
                f"the smaller network has no {name!r}, so it cannot be written as ONNX: layers "
                "were exchanged; compress without lowrank"
            )
    changed = {
        value for name, value in file.weights.items() if not _same(before[name], after[name])
    }
    copies = {node.output[0]: node.input[0] for node in file.proto.graph.node if _is_copy(node)}
    for name, value in file.weights.items():
        tensor = after[name].detach().cpu()
        if name in file.readers:
            if not _same(before[name], after[name]):
                edit.set_input(file.readers[name], value, tensor)
        elif _source(value, copies) in changed or value in changed:
            edit.set_value(value, tensor)
    for place, number in _changed_sizes(file, original, smaller).items():
        edit.set_size(place, number)
    return edit.finished()


def save_onnx(
    original: nn.Module, smaller: nn.Module, path: str | os.PathLike[str], overwrite: bool
) -> Any:
    """Write the smaller network as a file, and return it as an `onnx.ModelProto`.

    `original` must have been read from a file.
    """
    if source_of(original) is None:
        raise ArgumentError(
            "this network was not read from an ONNX file, so there is none to write it into; "
            "export it with torch.onnx.export"
        )
    assert isinstance(original, fx.GraphModule)
    assert isinstance(smaller, fx.GraphModule)
    proto = smaller_proto(original, smaller)
    _save_proto(proto, path, overwrite)
    return proto


def _save_proto(proto: Any, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Write a file beside its target, and move it into place.

    Weights of more than 2 GB are in a second file, with `.data` after the name of the first.
    """
    onnx = onnx_library()
    target = target_path(path)
    if target.exists() and not overwrite:
        raise StorageError(f"{target} exists; pass overwrite=True to replace it")
    if not target.parent.is_dir():
        raise StorageError(f"{target.parent} is not a folder; choose one that exists")
    data = f"{target.name}.data"  # the file says this name, so it is written under it
    temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        temporary.mkdir()
        if proto.ByteSize() < _LARGEST:
            (temporary / target.name).write_bytes(proto.SerializeToString())
        else:
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)  # saving empties the weights
            onnx.save_model(
                copy, temporary / target.name, save_as_external_data=True, location=data
            )
            os.replace(temporary / data, target.with_name(data))
        os.replace(temporary / target.name, target)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; choose a folder that is writable and has "
            "room"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _tensors(network: fx.GraphModule) -> dict[str, Tensor]:
    return dict(network.named_parameters()) | dict(network.named_buffers())


def _is_copy(node: Any) -> bool:
    return node.op_type == "Identity" and node.domain in ("", "ai.onnx")


def _source(value: str, copies: dict[str, str]) -> str:
    """Return the value that a value is a copy of, through any number of copies."""
    while value in copies:
        value = copies[value]
    return value


def _same(before: Tensor, after: Tensor) -> bool:
    return before is after or (before.shape == after.shape and torch.equal(before, after))


def _changed_sizes(
    file: OnnxFile, original: fx.GraphModule, smaller: fx.GraphModule
) -> dict[Place, int]:
    """Return the integers of the file that change, with their new values."""
    before = {node.name: node for node in original.graph.nodes}
    changed: dict[Place, int] = {}
    traced = set()
    for node in smaller.graph.nodes:
        if node.name not in before:
            continue
        old, new = (_integers(n) for n in (before[node.name], node))
        for path in old.keys() & new.keys():
            if old[path] == new[path]:
                continue
            place = file.sizes.get((node.name, path))
            if place is not None and place.argument == IMPLIED:
                continue
            if place is None or changed.get(place, new[path]) != new[path]:
                raise StorageError(
                    f"{file.name} computes the size {old[path]} at {node.name!r}, which becomes "
                    f"{new[path]}, from other numbers; exclude the layers before it, or simplify "
                    "the file with onnxsim"
                )
            changed[place] = new[path]
            traced.add((node.name, path))
    for key, place in file.sizes.items():  # a number that is used twice must change twice
        if place in changed and key not in traced and at_node(before, key) != changed[place]:
            raise StorageError(
                f"{file.name} uses one list of sizes in several places, of which only some change "
                f"(at {key[0]!r}); simplify the file with onnxsim"
            )
    # a Split of equal parts may become one that says its sizes: all of them are needed then
    lists = {(place.node, place.argument) for place in changed if place.argument == "split"}
    after = {node.name: node for node in smaller.graph.nodes}
    for key, place in file.sizes.items():
        if (place.node, place.argument) in lists:
            changed.setdefault(place, at_node(after, key))
    return changed


def at_node(nodes: dict[str, fx.Node], key: tuple[str, Any]) -> Any:
    """Return the argument of a node that a key of `OnnxFile.sizes` names."""
    node = nodes[key[0]]
    return at((node.args, node.kwargs), key[1])


def _integers(node: fx.Node) -> dict[tuple[Any, ...], int]:
    """Return the integers among a node's arguments, by the way to them."""
    found: dict[tuple[Any, ...], int] = {}

    def collect(argument: Any, path: tuple[Any, ...]) -> None:
        if type(argument) is int:
            found[path] = argument
        elif isinstance(argument, list | tuple):
            for index, item in enumerate(argument):
                collect(item, (*path, index))
        elif isinstance(argument, dict):
            for key, item in argument.items():
                collect(item, (*path, key))

    collect((node.args, node.kwargs), ())
    return found

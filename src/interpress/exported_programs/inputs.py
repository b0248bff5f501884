"""The inputs of an exported program: which sizes are free, and random inputs of other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from interpress.graph.example import Example

_SMALLEST = 2  # torch.export treats sizes of 0 and 1 as constants


def input_values(program: ExportedProgram) -> Iterator[Any]:
    """Yield the inputs that the user passes, as fake tensors or constants, in order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            argument = spec.arg
            is_constant = isinstance(argument, ConstantArgument)
            yield argument.value if is_constant else values[argument.name]


def sizes_to_try(program: ExportedProgram) -> dict[Any, int]:
    """Return a size for every free symbol of the inputs; all differ where their ranges allow it."""
    symbols: dict[Any, None] = {}
    for value in input_values(program):
        for size in value.shape if isinstance(value, Tensor) else ():
            symbols |= dict.fromkeys([] if isinstance(size, int) else _symbols(size))
    sizes = {}
    for number, symbol in enumerate(symbols):
        wanted, bounds = _SMALLEST + 1 + number, program.range_constraints.get(symbol)
        if bounds is not None:
            wanted = int(min(max(wanted, int(bounds.lower)), bounds.upper))
        sizes[symbol] = wanted
    return sizes


def random_inputs(program: ExportedProgram, sizes: Mapping[Any, int], seed: int = 0) -> Example:
    """Return inputs of a program with these sizes of its symbols.

    Real numbers are random. Integers are 0 or 1, which any table of embeddings has.
    """
    generator = torch.Generator().manual_seed(seed)

    def made(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        shape = [
            size if isinstance(size, int) else int(size.node.expr.subs(dict(sizes)))
            for size in value.shape
        ]
        numbers = torch.rand(shape, generator=generator)
        integers = not value.is_floating_point()
        return (2 * numbers if integers else numbers).to(value.dtype).to(value.device)

    return _call(program, [made(value) for value in input_values(program)])


def free_sizes(program: ExportedProgram) -> Example:
    """Return, for every input, its free dims with their ranges, as `dynamic_shapes` has them."""

    def described(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        dims = enumerate(value.shape)
        return {dim: _free(program, size) for dim, size in dims if not isinstance(size, int)}

    return _call(program, [described(value) for value in input_values(program)])


def _free(program: ExportedProgram, size: Any) -> Any:
    bounds = program.range_constraints.get(size.node.expr)
    if bounds is None:
        return Dim.AUTO
    limits = {"min": int(bounds.lower)} if int(bounds.lower) > _SMALLEST else {}
    if bounds.upper.is_Integer:
        limits["max"] = int(bounds.upper)
    return Dim.AUTO(**limits) if limits else Dim.AUTO


def _symbols(size: Any) -> list[Any]:
    return sorted(size.node.expr.free_symbols, key=str)


def _call(program: ExportedProgram, leaves: list[Any]) -> Example:
    """Return the leaves in the structure in which the program is called."""
    spec = program.call_spec.in_spec
    assert spec is not None
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return Example(tuple(args), kwargs)

"""A shorter copy of a model: of blocks that are alike, only the first two stay.

Blocks are children of a list or a sequence of modules that run the same operators on the same
shapes. What is found out on two of them holds for all, because they run the same code. So a model
with many layers is tried as fast as one with two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from interpress.errors import InterpressError
from interpress.graph.capture import capture
from interpress.graph.program import Program, module_of
from interpress.surgery.weights import copy_with

KEPT = 2
"""Blocks that stay of every run of blocks that are alike, if the model is not large."""
_WORTHWHILE = 0.5
"""Largest fraction of the operators that may be left; otherwise the model is tried as it is."""


@dataclass(frozen=True)
class Shortened:
    """A program of the shorter copy, and which of its modules stand for which of the model's."""

    program: Program
    representative: dict[str, str]
    """Per block of the model that is alike to another one, a block that stays."""
    numbers: dict[str, str]
    """Per block that stays, its number in the shorter copy."""

    def name(self, full_name: str) -> str:
        """Return what stands in the shorter copy for a module, a weight or a space."""
        base, suffix = _split(full_name)
        full, short = "", ""
        for part in base.split("."):
            full = _join(full, part)
            full = self.representative.get(full, full)
            short = _join(short, self.numbers.get(full, part))
        return short + suffix

    def block(self, full_name: str) -> str:
        """Return the outermost block of the model that a name belongs to, or an empty string."""
        base, _ = _split(full_name)
        full = ""
        for part in base.split("."):
            full = _join(full, part)
            if full in self.numbers or full in self.representative:
                return full
        return ""


def shorten(program: Program, kept: int = KEPT) -> Shortened | None:
    """Return the shorter copy of a program's model; None if it would not be much shorter.

    Of blocks that are alike, `kept` stay. It is also None if the copy does not run exactly the
    operators that are left.
    """
    representative = _representatives(program, kept)
    removed = {block for block, other in representative.items() if block != other}
    left = [node for node in program.operators() if not _is_inside(module_of(node), removed)]
    if not removed or len(left) > _WORTHWHILE * sum(1 for _ in program.operators()):
        return None
    named = dict(program.model.named_parameters()) | dict(program.model.named_buffers())
    model = copy_with(program.model, named, shared=True)
    numbers = _remove(model, program.model, removed)
    try:
        short = capture(model, program.example)
    except InterpressError:  # its code expects all blocks
        return None
    same = [_key(node) for node in left] == [_key(node) for node in short.operators()]
    return Shortened(short, representative, numbers) if same else None


def _representatives(program: Program, kept: int) -> dict[str, str]:
    """Return, for every block that is alike to the one before it, a block that stays."""
    operators: dict[str, list[Any]] = {}
    for node in program.operators():
        parts = module_of(node).split(".")
        for end in range(1, len(parts) + 1):
            operators.setdefault(".".join(parts[:end]), []).append(_key(node))
    representative: dict[str, str] = {}
    for path, container in _containers(program.model):
        run: list[str] = []
        for number, child in container.named_children():
            block = _join(path, number)
            alike = run and operators.get(block) == operators.get(run[0])
            if alike and block in operators and _is_like(child, _child(container, run[0])):
                run.append(block)
                representative[block] = block if len(run) <= kept else run[kept - 1]
            else:
                run = [block]
    return representative


def _is_like(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two modules have the same classes and weights of the same shapes."""

    def described(module: nn.Module) -> list[Any]:
        tensors = [*module.named_parameters(), *module.named_buffers()]
        return [
            *((name, type(part)) for name, part in module.named_modules()),
            *((name, tensor.shape, tensor.dtype) for name, tensor in tensors),
        ]

    return described(first) == described(second)


def _containers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            yield path, module


def _remove(model: nn.Module, original: nn.Module, removed: set[str]) -> dict[str, str]:
    """Remove blocks from a copy; return the new numbers of those that stay beside them."""
    numbers: dict[str, str] = {}
    copies = dict(model.named_modules())
    for path, container in _containers(original):
        children = [number for number, _ in container.named_children()]
        gone = [number for number in children if _join(path, number) in removed]
        stay = [number for number in children if number not in gone]
        if gone and not _is_inside(path, removed):
            copy: Any = copies[path]
            for number in reversed(gone):
                del copy[int(number)]
            numbers |= {_join(path, number): str(new) for new, number in enumerate(stay)}
    return numbers


def _key(node: fx.Node) -> tuple[str, str, str]:
    """Return what an operator computes: its name, its constants, and the shapes of its result."""
    constants = fx.node.map_arg((node.args, node.kwargs), lambda operand: "value")
    leaves = pytree.tree_leaves(node.meta.get("val"))
    shapes = [(tuple(map(str, t.shape)), t.dtype) for t in leaves if isinstance(t, Tensor)]
    return str(node.target), str(constants), str(shapes)


def _child(container: nn.Module, block: str) -> nn.Module:
    return container.get_submodule(block.rpartition(".")[2])


def _is_inside(path: str, blocks: set[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:end]) in blocks for end in range(1, len(parts) + 1))


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _split(name: str) -> tuple[str, str]:
    """Return a name without the endings that tell spaces of one module apart."""
    match = re.match(r"(.*?)([:#].*)?$", name)
    assert match is not None
    return match.group(1), match.group(2) or ""

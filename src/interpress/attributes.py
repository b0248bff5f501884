"""Making a smaller copy's attributes true again: `out_channels`, `num_heads`, `groups`, ...

PyTorch's own layers say their sizes in known attributes. Other modules keep sizes under names of
their own and use them in `view` and `split`; there, a whole number that equals a size which changed
is a candidate. Which of the candidates to change is decided by running the smaller network, never
by the name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from interpress.cost import CostModel
from interpress.graph.graph import module_of
from interpress.graph.spaces import Spaces
from interpress.graph.trace import Op, Value

Choices = dict[str, int]
"""Per module class, which of its combinations of candidates is in use."""


def _convolution(module: Any) -> dict[str, int]:
    transposed = isinstance(module, _ConvTransposeNd)
    reads, makes = (0, 1) if transposed else (1, 0)
    groups = module.groups
    shape = module.weight.shape
    if groups > 1 and groups == module.in_channels:  # depthwise: one group per channel
        multiplier = module.out_channels // groups
        groups = shape[0] if transposed else shape[0] // multiplier
    width = {"groups": groups}
    width["in_channels"] = shape[reads] * (1 if transposed else groups)
    width["out_channels"] = shape[makes] * (groups if transposed else 1)
    return width


def _norm(module: Any) -> dict[str, int]:
    vector = module.weight if module.weight is not None else module.running_mean
    return {} if vector is None else {"num_features": len(vector)}


def _group_norm(module: Any) -> dict[str, int]:
    if module.weight is None:
        return {}
    channels = len(module.weight)
    own = module.num_groups == module.num_channels
    return {"num_channels": channels} | ({"num_groups": channels} if own else {})


KNOWN: list[tuple[type[nn.Module], Callable[[Any], dict[str, int]]]] = [
    (_ConvNd, _convolution),
    (_NormBase, _norm),
    (nn.GroupNorm, _group_norm),
    (nn.Linear, lambda m: {"out_features": m.weight.shape[0], "in_features": m.weight.shape[1]}),
    (nn.Embedding, lambda m: {"embedding_dim": m.weight.shape[1]}),
    (nn.PReLU, lambda m: {"num_parameters": len(m.weight)}),
]
"""How PyTorch's own layers say their sizes."""


@dataclass(frozen=True)
class Candidate:
    """A whole number kept by a module, and what it may become."""

    module: str
    attribute: str
    place: int | None
    """The place in a tuple or list, or None for a plain number."""
    options: tuple[int, ...]


def refresh(spaces: Spaces, cut: Any, smaller: nn.Module, choices: Choices | None = None) -> None:
    """Set the attributes of a smaller copy to its real sizes."""
    chosen = choices if choices is not None else spaces.hints.get("choices", {})
    assert isinstance(chosen, dict)
    modules = dict(smaller.named_modules())
    for module in modules.values():
        for kind, sizes in KNOWN:
            if isinstance(module, kind):
                for name, size in sizes(module).items():
                    setattr(module, name, size)
                break
    widths = {name: len(index) for name, index in cut.kept.items()}
    for own in candidates(spaces, widths).values():
        kind = type(modules[own[0].module]).__qualname__
        picks = combination(own, chosen.get(kind, 0))
        for candidate, value in zip(own, picks, strict=True):
            _assign(modules[candidate.module], candidate, value)


def _assign(module: nn.Module, candidate: Candidate, value: int) -> None:
    if candidate.place is None:
        setattr(module, candidate.attribute, value)
        return
    values = list(getattr(module, candidate.attribute))
    values[candidate.place] = value
    kind = type(getattr(module, candidate.attribute))
    setattr(module, candidate.attribute, kind(values))


def combinations(own: list[Candidate]) -> int:
    """How many ways there are to choose."""
    count = 1
    for candidate in own:
        count *= len(candidate.options)
    return count


def combination(own: list[Candidate], number: int) -> list[int]:
    """The numbered way to choose; number 0 takes every first option."""
    picks = []
    for candidate in own:
        number, index = divmod(number, len(candidate.options))
        picks.append(candidate.options[index])
    return picks


def candidates(spaces: Spaces, widths: dict[str, int]) -> dict[str, list[Candidate]]:
    """Per module, the numbers that may have to change at these widths."""
    changes = _changes(spaces, widths)
    found: dict[str, list[Candidate]] = {}
    for name, module in spaces.graph.model.named_modules():
        if any(isinstance(module, kind) for kind, _ in KNOWN):
            continue
        near = changes.get(name, {})
        below = [own for inner, own in changes.items() if inner.startswith(f"{name}." if name else "")]
        own = [
            Candidate(name, attribute, place, options)
            for attribute, place, number in _numbers(module)
            if (options := _options(number, near, below))
        ]
        if own:
            found[name] = own
    return found


def _options(number: int, near: dict[int, set[int]], below: list[dict[int, set[int]]]) -> tuple[int, ...]:
    """What a number may become, likeliest first; nothing where it surely stays."""
    seen = near.get(number, set())
    changed = sorted(seen - {number}, reverse=True)
    if not changed:
        under = set().union(*(own.get(number, set()) for own in below)) if below else set()
        changed = sorted(under - {number}, reverse=True)
        return (number, *changed) if changed else ()
    return (number, *changed) if number in seen else (*changed, number)


def _numbers(module: nn.Module) -> Iterator[tuple[str, int | None, int]]:
    """The whole numbers a module keeps, in plain attributes, tuples and lists."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if type(value) is int and value > 1:
            yield name, None, value
        elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
            yield from ((name, place, item) for place, item in enumerate(value) if item > 1)


def _changes(spaces: Spaces, widths: dict[str, int]) -> dict[str, dict[int, set[int]]]:
    """Per module, every size met in its weights and operators, and what it becomes."""
    cost = CostModel(spaces)
    shares = cost.shares(widths)
    changes: dict[str, dict[int, set[int]]] = {}

    def note(module: str, value: Value) -> None:
        own = changes.setdefault(module, {})
        for dim, size in enumerate(value.shape):
            own.setdefault(size, set()).add(cost.size(value, dim, shares))

    for name, value in spaces.trace.weights.items():
        note(name.rpartition(".")[0], value)
    for op in spaces.trace.ops:
        for value in _tensors(op):
            note(module_of(op.node), value)
    return changes


def _tensors(op: Op) -> list[Value]:
    return [*op.inputs(), *op.outputs]

"""The projection identity: proof that a smaller network is what it was planned to be.

The smaller network's output must equal the full network's, run with every tap replaced by
`Z[:, kept] @ T`. That holds for any weights and any data, so it is checked on a real batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.errors import InterpressError, SurgeryError
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import exact_kernels
from interpress.graph.model_state import output_tensors
from interpress.graph.program import Program, captured_name, fixed_size
from interpress.linalg.precision import exact_dtype
from interpress.spaces.read_sites import by_node, operand_of, with_operand
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut


@dataclass(frozen=True)
class Proof:
    """How far the smaller network is from the projected one, and how far it may be."""

    difference: float
    """Largest relative difference over the outputs: ||a - b|| / ||b||."""
    tolerance: float

    def __bool__(self) -> bool:
        return self.difference <= self.tolerance


def measure(
    spaces: Spaces, example: Any = None, taps: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """`Z` (rows, columns) of every tap on a batch, in the model's own precision."""
    wanted = [spaces.taps[name] for name in (spaces.taps if taps is None else taps)]
    found: dict[str, list[Tensor]] = {tap.name: [] for tap in wanted}
    sites = by_node(wanted)

    def watch(node: fx.Node, args: Any, kwargs: Any) -> Any:
        for tap, site in sites.get(node, ()):
            found[tap.name].append(tap.columns(operand_of(node, args, kwargs, site), site))
        return args, kwargs

    Executor(spaces.program).run(example, before=watch)
    return {name: torch.cat(parts) for name, parts in found.items()}


def projected(
    spaces: Spaces, cut: Cut, example: Any = None, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """The full network's outputs with every tap replaced by `Z[:, kept] @ T`."""
    sites = by_node([tap for tap in spaces.taps.values() if not bool(cut.stays(tap.labels).all())])

    def watch(node: fx.Node, args: Any, kwargs: Any) -> Any:
        for tap, site in sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            kept = cut.columns(tap)
            T = cut.T.get(tap.name)
            if T is None:
                T = torch.eye(tap.size, dtype=torch.float64)[kept]
            replaced = tap.replaced(operand, site, kept, T)
            args, kwargs = with_operand(node, args, kwargs, site, replaced)
        return args, kwargs

    kernels = exact_kernels(spaces.program) if dtype is torch.float64 else {}
    executor = Executor(spaces.program, dtype=dtype, kernels=kernels)
    return executor.run(example, before=watch, scores=True)


def prove(spaces: Spaces, cut: Cut, smaller: nn.Module, example: Any = None) -> Proof:
    """Compare a smaller network with the projected one, in double precision where possible.

    On two of the captured examples where no others are given: what holds for any holds for all.
    """
    inputs = _two(spaces.program) if example is None else Example.of(example)
    device = next((t.device for t in smaller.parameters()), torch.device("cpu"))
    dtype = exact_dtype(device)
    _check_weights(smaller, cut)
    try:
        with _default_dtype(dtype):
            with _same_randomness():
                expected = projected(spaces, cut, inputs, dtype)
            with _unrounded_weights(smaller, cut, dtype), _same_randomness():
                got = _outcome(spaces, smaller, inputs.map(lambda t: _cast(t, dtype)))
        tolerance = _tolerance(spaces, dtype)
    except (RuntimeError, TypeError):  # code that insists on its own precision
        with _same_randomness():
            expected = projected(spaces, cut, inputs)
        with _same_randomness():
            got = _outcome(spaces, smaller, inputs)
        types = {t.dtype for t in got if t.is_floating_point()}
        if spaces.program.autocasts:
            types.add(torch.bfloat16)
        tolerance = float(max(torch.finfo(kind).eps for kind in types)) ** 0.5
    return Proof(_difference(got, expected), tolerance)


def _two(program: Program) -> Example:
    """Two of the captured examples, if the graph runs on any number of them."""
    inputs = [node for node in program.nodes if captured_name(node) in program.inputs]
    shapes = [node.meta["val"].shape for node in inputs if isinstance(node.meta["val"], Tensor)]
    counted = any(len(shape) and fixed_size(shape[0]) is not None for shape in shapes)
    return program.example if counted else program.example.map(lambda t: t[:2] if t.ndim else t)


def _tolerance(spaces: Spaces, dtype: torch.dtype) -> float:
    if spaces.program.autocasts:
        return 3e-2
    if dtype is torch.float32:
        return 1e-3
    return 1e-4 if spaces.program.casts else 1e-9


def _outcome(spaces: Spaces, model: nn.Module, inputs: Example) -> list[Tensor]:
    """What to compare: the outputs, or for whole numbers what they were made from."""
    if not spaces.program.decides:
        return output_tensors(model, inputs)
    with torch.no_grad():
        return Executor(capture(model, inputs)).run(inputs, scores=True)


@contextlib.contextmanager
def _same_randomness() -> Iterator[None]:
    """Random numbers drawn in a forward are the same in every run, and the user's stay."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a forward makes without saying of which type are of this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _unrounded_weights(smaller: nn.Module, cut: Cut, dtype: torch.dtype) -> Iterator[None]:
    """The smaller network in a better type, its changed weights as before they were rounded."""
    named = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    rounded = {name: tensor.data for name, tensor in named.items()}
    try:
        for name, tensor in named.items():
            tensor.data = _cast(cut.weights.get(name, tensor.data), dtype)
        yield
    finally:
        for name, tensor in named.items():
            tensor.data = rounded[name]


def _check_weights(smaller: nn.Module, cut: Cut) -> None:
    stored = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    for name, weight in cut.weights.items():
        if not torch.equal(weight.to(stored[name].dtype), stored[name].detach()):
            raise SurgeryError(f"{name} of the smaller network is not what the plan makes of it")


def check(spaces: Spaces, cut: Cut, smaller: nn.Module, example: Any = None) -> Proof:
    """As `prove`, and an error where the identity does not hold."""
    try:
        proof = prove(spaces, cut, smaller, example)
    except InterpressError:
        raise
    except Exception as problem:  # whatever the model's own code raises
        raise SurgeryError(
            f"the smaller network does not run ({type(problem).__name__}: {problem}); keep more "
            "channels, or freeze the space that is to blame"
        ) from problem
    if not proof:
        raise SurgeryError(
            f"the smaller network differs from the projected one by {proof.difference:.1e}, "
            f"more than {proof.tolerance:.0e}; keep more channels, or freeze the space to blame"
        )
    return proof


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _difference(got: list[Tensor], expected: list[Tensor]) -> float:
    if [a.shape for a in got] != [b.shape for b in expected]:
        return float("inf")
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        if not a.is_floating_point():
            continue
        a, b = a.double().cpu(), b.double().cpu()
        if bool(b.isinf().any()):  # masked positions may be infinite in both
            same = a == b
            a, b = torch.where(same, 0.0, a), torch.where(same, 0.0, b)
        size = float(torch.linalg.vector_norm(b))
        apart = float(torch.linalg.vector_norm(a - b))
        relative = apart / size if size else apart
        if relative != relative:
            return float("inf")
        worst = max(worst, relative)
    return worst

"""The projection identity: check that surgery built the network that was planned.

The output of the smaller network must equal the output of the original network in which every tap
`Z` is replaced by `Z[:, kept] @ T`. The identity holds for all weights and all inputs, so one batch
is enough to check it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils.hooks import RemovableHandle

from interpress.errors import InterpressError, SurgeryError
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.executor import Before, Executor
from interpress.graph.fast_kernels import exact_kernels
from interpress.graph.global_settings import default_dtype
from interpress.graph.model_state import output_tensors
from interpress.graph.program import Program, captured_name, fixed_size
from interpress.graph.restoring import finish
from interpress.linalg.precision import exact_dtype
from interpress.spaces.read_sites import by_node, operand_of, with_operand
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.output_difference import difference

_CAST_AT_ONCE = 2**31  # bytes of weights in double precision; larger networks by module
_NOISE_MARGIN = 10  # times the difference that rounding alone causes may be allowed
_LARGEST_TOLERANCE = 3e-2  # whatever the rounding; as much as autocast may cause


@dataclass(frozen=True)
class Proof:
    """The difference between the smaller network and the projected one. True if small enough."""

    difference: float
    """Largest relative difference over the outputs: ||smaller - projected|| / ||projected||."""
    tolerance: float

    def __bool__(self) -> bool:
        return self.difference <= self.tolerance


def measure_taps(
    spaces: Spaces, example: Any = None, taps: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """Return `Z` (rows, columns) of some or all taps on a batch, in the model's own precision."""
    wanted = [spaces.taps[name] for name in (spaces.taps if taps is None else taps)]
    parts: dict[str, list[Tensor]] = {tap.name: [] for tap in wanted}
    sites = by_node(wanted)

    def record(node: fx.Node, args: Any, kwargs: Any) -> Any:
        for tap, site in sites.get(node, ()):
            parts[tap.name].append(tap.columns(operand_of(node, args, kwargs, site), site))
        return args, kwargs

    Executor(spaces.program).run(example, before=record)
    return {name: torch.cat(matrices) for name, matrices in parts.items()}


def projecting(spaces: Spaces, cut: Cut) -> Before:
    """Return a hook that replaces every tap `Z` by `Z[:, kept] @ T`."""
    sites = by_node([tap for tap in spaces.taps.values() if not bool(cut.stays(tap.labels).all())])

    def project(node: fx.Node, args: Any, kwargs: Any) -> Any:
        for tap, site in sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            kept = cut.columns(tap)
            T = cut.T.get(tap.name)
            if T is None:
                T = torch.eye(tap.size, dtype=torch.float64)[kept]
            replaced = tap.replaced(operand, site, kept, T)
            args, kwargs = with_operand(node, args, kwargs, site, replaced)
        return args, kwargs

    return project


def projected(
    spaces: Spaces,
    cut: Cut,
    example: Any = None,
    dtype: torch.dtype | None = None,
    *,
    rounds: bool = False,
) -> list[Tensor]:
    """Return the outputs of the original network with every tap replaced by `Z[:, kept] @ T`.

    `rounds` as for `Executor`.
    """
    kernels = exact_kernels(spaces.program) if dtype is torch.float64 else {}
    executor = Executor(spaces.program, dtype=dtype, kernels=kernels, rounds=rounds)
    return executor.run(example, before=projecting(spaces, cut), scores=True)


def prove(spaces: Spaces, cut: Cut, smaller: nn.Module, example: Any = None) -> Proof:
    """Compare a smaller network with the projected one, in double precision if possible.

    Without an `example`, two of the captured examples are used.
    """
    inputs = two_examples(spaces.program) if example is None else Example.of(example)
    dtype = exact_dtype(spaces.program.device)
    _check_weights(smaller, cut)
    try:
        with default_dtype.set_to(dtype):
            with fixed_seed():
                expected = projected(spaces, cut, inputs, dtype)
            with _unrounded_weights(smaller, cut, dtype), fixed_seed():
                outputs = comparable_outputs(
                    spaces, smaller, inputs.map(lambda t: in_dtype(t, dtype))
                )
            apart, allowed = difference(outputs, expected), tolerance(spaces, dtype)
            if spaces.program.casts and apart > allowed:
                with fixed_seed():
                    rounded = projected(spaces, cut, inputs, dtype, rounds=True)
                allowed = tolerance_of_casts(difference(rounded, expected), allowed)
    except (RuntimeError, TypeError):  # the model's code runs only in its own precision
        with fixed_seed():
            expected = projected(spaces, cut, inputs)
        with fixed_seed():
            outputs = comparable_outputs(spaces, smaller, inputs)
        apart, allowed = difference(outputs, expected), own_tolerance(spaces, outputs)
    return Proof(apart, allowed)


def two_examples(program: Program) -> Example:
    """Return two of the captured examples, or all if the batch size of the program is fixed."""
    inputs = [node for node in program.nodes if captured_name(node) in program.inputs]
    shapes = [node.meta["val"].shape for node in inputs if isinstance(node.meta["val"], Tensor)]
    fixed = any(len(shape) and fixed_size(shape[0]) is not None for shape in shapes)
    return program.example if fixed else program.example.map(lambda t: t[:2] if t.ndim else t)


def tolerance(spaces: Spaces, dtype: torch.dtype) -> float:
    """Return the relative difference allowed for rounding, given the precision of the run.

    Autocast computes in bfloat16 or float16. A model that casts runs some operators in the dtype
    that its code names, usually float32, even if all weights and inputs are float64.
    """
    if spaces.program.autocasts:
        return 3e-2
    if dtype is torch.float32:
        return 1e-3
    return 1e-4 if spaces.program.casts else 1e-9


def tolerance_of_casts(noise: float, least: float) -> float:
    """Return the difference allowed in a model that casts, given what its rounding alone causes.

    The deeper the network, the more it amplifies the rounding of its casts. Mistakes in surgery
    cause differences near 1.
    """
    return min(max(least, _NOISE_MARGIN * noise), _LARGEST_TOLERANCE)


def own_tolerance(spaces: Spaces, outputs: Iterable[Tensor]) -> float:
    """Return the relative difference allowed for rounding in the precision of the outputs."""
    types = {t.dtype for t in outputs if t.is_floating_point()}
    if spaces.program.autocasts:
        types.add(torch.bfloat16)
    return float(max(torch.finfo(kind).eps for kind in types)) ** 0.5


def comparable_outputs(spaces: Spaces, model: nn.Module, inputs: Example) -> list[Tensor]:
    """Return the outputs; if some are integers, the scores they were computed from instead."""
    if not spaces.program.decides:
        return output_tensors(model, inputs)
    with torch.no_grad():
        return Executor(capture(model, inputs)).run(inputs, scores=True)


@contextlib.contextmanager
def fixed_seed(seed: int = 0) -> Iterator[None]:
    """Let every run of the model draw the same random numbers; restore the user's state."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _unrounded_weights(smaller: nn.Module, cut: Cut, dtype: torch.dtype) -> Iterator[None]:
    """Cast the smaller network to `dtype`, with changed weights as they were before rounding.

    The weights of a large network are cast one module at a time, while its forward runs.
    """
    named = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    names = {id(tensor): name for name, tensor in named.items()}
    rounded = {name: tensor.data for name, tensor in named.items()}

    def cast(tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            name = names[id(tensor)]
            tensor.data = in_dtype(cut.weights.get(name, tensor.data), dtype)

    def restore(tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            tensor.data = rounded[names[id(tensor)]]

    size = sum(tensor.numel() for tensor in named.values()) * dtype.itemsize
    modules = [] if size <= _CAST_AT_ONCE or cut.spaces.program.decides else [*smaller.modules()]
    handles: list[RemovableHandle] = []
    try:
        for module in modules:
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if own:
                before = module.register_forward_pre_hook(lambda *_, own=own: cast(own))
                after = module.register_forward_hook(
                    lambda *_, own=own: restore(own), always_call=True
                )
                handles += [before, after]
        if not modules:
            cast(named.values())
        yield
    finally:
        for handle in handles:
            handle.remove()
        finish(lambda: restore(named.values()))


def _check_weights(smaller: nn.Module, cut: Cut) -> None:
    stored = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    for name in cut.weights:
        weight = cut.weights[name]
        if not torch.equal(weight.to(stored[name]), stored[name].detach()):
            raise SurgeryError(
                f"{name} of the smaller network differs from the weight computed by the cut; build "
                "the network with the same kept channels and T, and do not change it before the "
                "check"
            )


def check(spaces: Spaces, cut: Cut, smaller: nn.Module, example: Any = None) -> Proof:
    """Return the result of `prove`, or raise `SurgeryError` if the identity does not hold."""
    try:
        proof = prove(spaces, cut, smaller, example)
    except InterpressError:
        raise
    except Exception as problem:  # the model's code may raise anything
        raise SurgeryError(
            f"the smaller network does not run ({type(problem).__name__}: {problem}); keep more "
            "channels, or exclude the modules that cannot run with fewer"
        ) from problem
    return checked(proof)


def checked(proof: Proof) -> Proof:
    """Return a proof, or raise `SurgeryError` if the identity does not hold."""
    if not proof:
        raise SurgeryError(
            f"the smaller network differs from the projected one by {proof.difference:.1e}, but at "
            f"most {proof.tolerance:.0e} is allowed; keep more channels, or exclude the modules "
            "whose code depends on the number of channels"
        )
    return proof


def in_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a floating-point tensor in a dtype; others stay as they are."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor

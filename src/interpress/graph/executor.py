"""Run a captured program, whole or in stretches, with hooks to watch and replace values.

Calibration, the refit, measured allocation and the projection identity all run programs through
this one interpreter. A `Frame` holds the values of one batch. `Executor.run` runs the whole
program on one batch. `Executor.advance` runs a stretch of operators in a frame, so that a caller
can stop between two layers. `Executor.rerun` repeats only the operators that depend on a changed
value and reads everything else from a recorded frame.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.on_device import move_values, placed
from interpress.graph.program import Program, captured_name, is_float_dtype, writes

Kernel = Callable[..., Any]
Before = Callable[
    [fx.Node, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]
]
"""Called before an operator runs; returns the arguments to use."""
After = Callable[[fx.Node, Any], None]
"""Called with the result of every node."""


@dataclass
class Frame:
    """The values of one batch while a program runs on it."""

    values: dict[fx.Node, Any] = field(default_factory=dict)
    background: Mapping[fx.Node, Any] = field(default_factory=dict)
    """Values to read where `values` has none: weights, or a recorded run. Never written to."""

    def __getitem__(self, node: fx.Node) -> Any:
        return self.values[node] if node in self.values else self.background[node]

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.values or node in self.background

    def move(self, device: torch.device) -> None:
        """Move all values to a device."""
        self.values.update(move_values(self.values, device))

    def branch(self) -> Frame:
        """Return a frame that goes on from where this one is, and shares its values."""
        return Frame(dict(self.values), self.background)


class _CastWhenRead(dict[fx.Node, Any]):
    """Weights and constants; what is cast or moved is held only while it is used."""

    def __init__(self, cast: Callable[[Any], Any]) -> None:
        super().__init__()
        self._cast = cast
        self.held: dict[fx.Node, Any] = {}

    def __getitem__(self, node: fx.Node) -> Any:
        return self.held[node] if node in self.held else self._cast(super().__getitem__(node))


class Executor:
    """Interpreter of one program.

    `weights` replaces the model's own parameters and buffers, by name. `dtype` computes everything
    floating-point in that type. `kernels` has faster calls for some operators. It computes on the
    device of the program's example; weights that live elsewhere are copied when they are read.
    """

    def __init__(
        self,
        program: Program,
        *,
        weights: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
        kernels: Mapping[fx.Node, Kernel] | None = None,
        rounds: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Prepare to run.

        `rounds` rounds values in `dtype` where the model casts to another. `differentiable` records
        gradients of values that require them, unless they are switched off outside.
        """
        self.program = program
        self.weights = dict(program.parameters() if weights is None else weights)
        self._dtype, self.device = dtype, program.example.device
        self._rounds, self._differentiable = rounds, differentiable
        self.kernels = {} if kernels is None else kernels
        self._inputs: list[fx.Node] = []
        self._constants = _CastWhenRead(self._cast)
        self._placeholders: dict[str, list[fx.Node]] = {}
        self._bind_constants()

    def _bind_constants(self) -> None:
        by_name: dict[str, fx.Node] = {}
        for node in self.program.nodes:
            if node.op == "get_attr":
                self._constants[node] = node.meta["attribute"]
            elif node.op == "placeholder":
                name = captured_name(node)
                if (weight := self.program.weights.get(name)) is not None:
                    self._constants[node] = self.weights[weight]
                    self._placeholders.setdefault(weight, []).append(node)
                elif name in self.program.constants:
                    self._constants[node] = self.program.constants[name]
                else:
                    by_name[name] = node
        self._inputs = [by_name[name] for name in self.program.inputs]

    def set_weight(self, name: str, value: Tensor, *, rounded: bool = True) -> Tensor:
        """Replace a weight and return it, in the weight's own dtype and on its device.

        With `rounded=False` it is used as it is.
        """
        value = self.weights[name] = value.to(self.weights[name]) if rounded else value
        for node in self._placeholders.get(name, ()):
            self._constants[node] = value
            if node in self._constants.held:
                self._constants.held[node] = self._cast(value)
        return value

    @contextlib.contextmanager
    def holding(self, nodes: Iterable[fx.Node]) -> Iterator[None]:
        """Copy the weights that some operators read once, and hold the copies in the body."""
        before = self._constants.held
        read = {operand for node in nodes for operand in node.all_input_nodes}
        held = {node: self._constants[node] for node in read if node in self._constants}
        self._constants.held = before | held
        try:
            yield
        finally:
            self._constants.held = before

    def frame(self, example: Any = None) -> Frame:
        """Return a frame with the inputs of one batch, before any operator has run."""
        leaves = self.program.flat_inputs(example)
        inputs = {n: self._cast(leaf) for n, leaf in zip(self._inputs, leaves, strict=True)}
        frame = Frame(inputs, self._constants)
        for node in self.program.written_sources:  # so that nothing of the caller's is overwritten
            frame.values[node] = frame[node].clone()
        return frame

    def run(
        self,
        example: Any = None,
        *,
        before: Before | None = None,
        after: After | None = None,
        scores: bool = False,
    ) -> list[Tensor]:
        """Run the whole program and return the output tensors, flat.

        With `scores`, an output that is not floating-point (a class, a mask) is replaced by the
        floating-point values it was computed from.
        """
        frame = self.frame(example)
        wanted = self.program.score_nodes() if scores and self.program.decides else ()
        kept: dict[fx.Node, Tensor] = {}

        def keep(node: fx.Node, value: Any) -> None:
            if node in wanted:
                kept[node] = value.clone()
            if after is not None:
                after(node, value)

        for node in self.program.nodes:
            if node.op == "output":
                break
            if node.op == "call_function":
                self._step(frame, node, before, ())
            if node in wanted or after is not None:
                keep(node, frame[node])
            self._release(frame, node)
        if wanted:
            return [kept[node] for node in wanted]
        result = fx.node.map_arg(self.program.nodes[-1].args[0], frame.__getitem__)
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]

    def advance(
        self,
        frame: Frame,
        nodes: Iterable[fx.Node],
        *,
        before: Before | None = None,
        after: After | None = None,
        protected: Collection[fx.Node] = (),
    ) -> None:
        """Run a stretch of operators in a frame, and release what no later operator needs.

        A value that the frame already has is not computed again. An operator that writes in place
        gets copies of the values in `protected`, which another frame shares.
        """
        for node in nodes:
            value = frame.values.get(node)
            if value is None:
                value = self._step(frame, node, before, protected)
            if after is not None:
                after(node, value)
            self._release(frame, node)

    def arguments(self, frame: Frame, node: fx.Node) -> Any:
        """Return the positional and keyword arguments that an operator is called with."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), frame.__getitem__)
        if self._dtype is not None:
            args, kwargs = _retype((args, kwargs), self._dtype)
        if self.device is not None:
            args, kwargs = placed((args, kwargs), self.device)
        return args, kwargs

    def record(self, example: Any = None) -> Frame:
        """Run the whole program and return a frame with the value of every node.

        If some operator writes in place, values are copied, so that the record stays as it was.
        """
        recorded: dict[fx.Node, Any] = {}
        copies = self.program.writes_in_place
        kept = self._constants.keys() - self.program.written_sources

        def keep(node: fx.Node, value: Any) -> None:
            copy = copies and isinstance(value, Tensor) and node not in kept
            recorded[node] = value.clone() if copy else value

        self.run(example, after=keep)
        return Frame({}, recorded)

    def rerun(self, recorded: Frame, changing: Collection[fx.Node], before: Before) -> Frame:
        """Repeat the operators in `changing` and all that depend on them.

        `before` changes the arguments of the operators in `changing`. All other values are read
        from `recorded`, which stays as it is. Return a frame with the outputs that changed.
        """
        frame = Frame({}, recorded.background)
        everything = self.program.writes_through_views  # copies of written values would be wrong
        if everything:
            for node in (*self._inputs, *self.program.written_sources):
                value = recorded[node]
                frame.values[node] = value.clone() if isinstance(value, Tensor) else value
        protected = () if everything else recorded.background
        for node in self.program.operators():
            depends = any(operand in frame.values for operand in node.all_input_nodes)
            if everything or node in changing or depends:
                self._step(frame, node, before, protected)
                self._release(frame, node)
        return frame

    def _step(
        self, frame: Frame, node: fx.Node, before: Before | None, protected: Collection[fx.Node]
    ) -> Any:
        args, kwargs = self.arguments(frame, node)
        if before is not None:
            args, kwargs = before(node, args, kwargs)
        if protected and writes(node):
            args = tuple(
                arg.clone() if isinstance(arg, Tensor) and operand in protected else arg
                for arg, operand in zip(args, node.args, strict=True)
            )
        with contextlib.nullcontext() if self._differentiable else torch.no_grad():
            value = _call(node, args, kwargs, self.kernels.get(node))
        if self._rounds and node in self.program.cast_nodes and isinstance(value, Tensor):
            value = value.to(self.program.cast_nodes[node]).to(value.dtype)
        if self.device is not None:  # also what an operator created elsewhere
            value = placed(value, self.device)
        frame.values[node] = value
        return value

    def _release(self, frame: Frame, node: fx.Node) -> None:
        for done in self.program.released_after.get(node, ()):
            frame.values.pop(done, None)

    def _cast(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        value = value if self.device is None else value.to(self.device)
        is_cast = self._dtype is not None and value.is_floating_point()
        return value.to(self._dtype) if is_cast else value


def _call(node: fx.Node, args: Any, kwargs: Any, kernel: Kernel | None) -> Any:
    """Return the result of one operator, in the autocast region it was captured in."""
    target = kernel or node.target
    assert callable(target)
    options = node.meta.get("autocast")
    region = contextlib.nullcontext() if options is None else torch.autocast(*options)
    with region:
        return target(*args, **kwargs)


def _retype(arguments: Any, dtype: torch.dtype) -> Any:
    """Let tensors that operators create or cast follow the precision of the run."""
    return pytree.tree_map(lambda leaf: dtype if is_float_dtype(leaf) else leaf, arguments)

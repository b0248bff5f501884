"""`refit`: re-solve every dense layer of the smaller network by least squares, front to back.

On the smaller network's own inputs, the weights of a layer are chosen so that its outputs come
closest to the full network's. This is a ridge regression towards the weights that surgery made,
bias included; it is solved in closed form and needs no labels. If the output is added to another
value (a residual connection), the target also compensates for what that value lost before. Both
networks run side by side once, on sampled rows. A layer keeps its new weights only if they are
better on rows that were not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from interpress.calibration.layer_outputs import ChosenOutputs
from interpress.calibration.row_weights import RowWeights
from interpress.errors import DataError
from interpress.graph.blocks import bytes_before
from interpress.graph.capture import capture
from interpress.graph.dense import CONVOLUTIONS, dense_layer_of
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.model_state import output_tensors
from interpress.graph.program import Program, family, usual_size
from interpress.linalg.low_rank import Factors
from interpress.refit.layer_pair import pairs_of, stretches
from interpress.refit.side_by_side import SideBySide
from interpress.refit.thin_layer import ThinLayer
from interpress.surgery.cut import Cut
from interpress.surgery.output_difference import difference
from interpress.surgery.projection_identity import (
    own_tolerance,
    tolerance_of_casts,
)
from interpress.surgery.resized_program import resized_program

_ROWS_PER_UNKNOWN = 8  # enough for a well-conditioned regression
_ROWS_PER_EXAMPLE = 16  # at most: further positions of an example are highly correlated
OTHER_OPERATORS = "the smaller network runs other operators than the original"
"""Why no layer is refitted, if the two networks cannot run side by side."""


@dataclass
class RefitResult:
    """New weights by name, and each layer's error before and after."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    factors: dict[str, Factors] = field(default_factory=dict)
    """The factors of every layer that became two, by weight."""
    skipped: str | None = None
    """Why no layer was tried, if none was."""


def refit(
    cut: Cut,
    smaller: nn.Module,
    examples: Sequence[Example],
    *,
    sample_weights: Tensor | None = None,
    seed: int = 0,
    row_weights: Mapping[str, RowWeights] | None = None,
    thin: Mapping[str, ThinLayer] | None = None,
    recorded: ChosenOutputs | None = None,
    done: Callable[[int], None] = lambda operators: None,
) -> RefitResult:
    """Return new weights for a smaller network, from batches that are all held at once.

    `sample_weights` has one weight per example; None weighs all equally. `row_weights`, `thin`
    and `recorded` as for `SideBySide`. `done` is called with the number of operators finished.
    """
    full = cut.spaces.program
    small = program_of(cut, smaller)
    if not same_operators(full, small):
        return RefitResult(skipped=OTHER_OPERATORS)
    walk = SideBySide(
        cut, full, small, examples, sample_weights, seed,
        before=actual_groups, row_weights=row_weights, thin=thin, recorded=recorded,
    )  # fmt: skip
    parts = list(stretches(pairs_of(full, small), walk.begins_stretch))
    for number, pairs in enumerate(parts):
        walk.run(pairs, is_last=number == len(parts) - 1)
        done(len(pairs))
    return RefitResult(walk.new_weights, walk.errors, walk.factors)


def examples_needed(program: Program) -> int:
    """Return how many examples give every layer enough rows; more improve little."""
    parameters = program.parameters()
    needed = 1
    for node in program.nodes:
        dense = dense_layer_of(program, node, parameters)
        if dense is not None:
            shape = node.meta["val"].shape
            sizes = [usual_size(n) for n in (shape[2:] if dense.spatial else shape[1:-1])]
            rows = min(math.prod(sizes), _ROWS_PER_EXAMPLE)
            needed = max(needed, -(-_ROWS_PER_UNKNOWN * dense.unknowns // rows))
    return needed


def held_bytes(program: Program) -> int:
    """Return the most bytes of one network's values that a refit holds, for the example.

    These are the values before a dense layer. What later operators allocate is held for one batch.
    """
    parameters = program.parameters()
    layers = [n for n in program.operators() if dense_layer_of(program, n, parameters) is not None]
    return bytes_before(program, layers)


def program_of(cut: Cut, smaller: nn.Module) -> Program:
    """Return a program of the smaller network.

    The original's program with new sizes is used if it gives the smaller network's outputs. If it
    does not, the smaller network is captured.
    """
    full = cut.spaces.program
    try:
        reused = resized_program(cut, smaller)
        if _gives_the_outputs(reused, cut):
            return reused
    except (RuntimeError, ValueError, IndexError, DataError):  # sizes computed from other sizes
        pass
    return capture(smaller, full.example)


def _gives_the_outputs(program: Program, cut: Cut) -> bool:
    """Return whether a program gives its model's outputs, up to rounding.

    A deep network amplifies rounding, so the original and its program say how much is usual.
    """
    full = cut.spaces.program
    expected = output_tensors(program.model, full.example)
    got = Executor(program).run(full.example, before=actual_groups)
    apart, allowed = difference(got, expected), own_tolerance(cut.spaces, expected)
    if apart > allowed:
        of_original = output_tensors(full.model, full.example)
        noise = difference(Executor(full).run(full.example), of_original)
        allowed = tolerance_of_casts(noise, allowed)
    return apart <= allowed


def actual_groups(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Give a grouped convolution as many groups as its smaller weight implies."""
    if node.op == "call_function" and family(node) in CONVOLUTIONS and len(args) > 6:
        groups = args[0].shape[1] // args[1].shape[1]
        return (*args[:6], groups, *args[7:]), kwargs
    return args, kwargs


def same_operators(full: Program, small: Program) -> bool:
    """Return whether two programs run the same operators in the same order."""
    return _signature(full) == _signature(small)


def _signature(program: Program) -> list[tuple[str, str]]:
    return [
        (node.op, str(node.target) if node.op == "call_function" else "") for node in program.nodes
    ]

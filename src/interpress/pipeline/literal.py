"""The paper's Algorithm 2 to the letter: measure the pruned network again after every step.

Kept for comparison. The one-pass form (`method="iterative-id"`) takes the same steps from the
original's activations and costs one pass in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from interpress.allocation.plan import Plan
from interpress.allocation.problem import Problem, Widths
from interpress.calibration.calibrate import calibrate
from interpress.calibration.statistics import Statistics
from interpress.calibration.study import Study
from interpress.errors import ArgumentError
from interpress.graph.capture import capture
from interpress.network.network import Network
from interpress.progress import Display
from interpress.selection.orders import ChannelOrder, order_channels
from interpress.selection.profile import profiles_of
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolations
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import shrunk_copy


class _Step(NamedTuple):
    """A candidate step: which space shrinks to which width."""

    score: float
    name: str
    width: int
    order: ChannelOrder


def literal_iterative_id(study: Study, problem: Problem, budget: float, bars: Display) -> Network:
    """Cut the layer with the lowest score, measure again, until the FLOPs are within the budget."""
    spaces, meter = study.spaces, problem.meter
    target = budget * meter.total({})
    state = _State(spaces, {name: spaces[name].size for name in problem.allowed})
    with bars.task("pruning step by step", meter.total({}) - target) as advance:
        while (now := meter.total(state.widths)) > target:
            small = spaces_of(capture(state.network(), spaces.program.example))
            statistics = calibrate(
                small,
                study.require_data().batches("fit"),
                patches=False,
                expected=study.fit_examples,
            )
            step = _best_step(problem, small, statistics, state.widths)
            if step is None:
                raise ArgumentError(
                    f"flops={budget:g} cannot be reached in steps of {problem.step:g}: no layer "
                    f"can lose more, and {now / meter.total({}):.3f} of the FLOPs remain; ask for "
                    "that, or take smaller steps"
                )
            width = _no_more_than_needed(problem, step, state.widths, now - target)
            kept = {step.name: step.order.kept(width)}
            T = interpolations(small, kept, statistics.factors)
            state.shrink(step.name, kept[step.name], T)
            advance(now - meter.total(state.widths))
    return state.finished(study, problem)


def _best_step(
    problem: Problem, small: Spaces, statistics: Statistics, widths: Widths
) -> _Step | None:
    """Return the step with the lowest `|r_kk / r_11| / FLOPs`, or None if no layer can shrink."""
    profiles = profiles_of(small, statistics)
    steps = []
    for name, width in widths.items():
        wanted = width - max(1, round(problem.step * width))
        new = next((w for w in problem.allowed[name] if w <= wanted), None)
        if new is None or name not in profiles:
            continue
        order = order_channels(profiles[name], "pivoting")
        score = float(order.proxy[new]) / problem.meter.dependent_cost(widths, name)
        steps.append(_Step(score, name, new, order))
    return min(steps, key=lambda step: step[:2], default=None)


def _no_more_than_needed(problem: Problem, step: _Step, widths: Widths, excess: float) -> int:
    """Return the largest width of a step that removes the excess cost, or the step's own."""
    between = [w for w in problem.allowed[step.name] if step.width <= w < widths[step.name]]
    enough = [w for w in between if problem.meter.saved(widths, step.name, w) >= excess]
    return max(enough, default=step.width)


class _State:
    """What is kept so far, in the original's numbering, with the product of all `T`."""

    def __init__(self, spaces: Spaces, widths: Widths) -> None:
        self.spaces, self.widths = spaces, widths
        self._kept: dict[str, Tensor] = {}
        self._T: dict[str, Tensor] = {}

    def network(self) -> nn.Module:
        """Return the pruned network so far."""
        return shrunk_copy(self._cut()) if self._kept else self.spaces.program.model

    def shrink(self, name: str, chosen: Tensor, T: Mapping[str, Tensor]) -> None:
        """Keep only the chosen ones of a space's remaining channels."""
        self._kept[name] = self._kept[name][chosen] if name in self._kept else chosen
        self.widths[name] = len(chosen)
        for tap, matrix in T.items():
            before = self._T.get(tap)
            self._T[tap] = matrix if before is None else matrix @ before

    def finished(self, study: Study, problem: Problem) -> Network:
        """Return the finished network, proved and compared."""
        cut = self._cut()
        model = shrunk_copy(cut)
        proof = check(self.spaces, cut, model)
        plan = Plan(self.widths, cut.kept, problem.orders)
        return Network(model, plan, cut, proof, study.evaluator().agreement(model))

    def _cut(self) -> Cut:
        return Cut(self.spaces, self._kept, self._T)

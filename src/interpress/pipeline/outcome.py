"""What a compression produced, as one record: the network, its costs, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from interpress.allocation.curve import Point, point_at, trade_off
from interpress.allocation.effects import Effects
from interpress.allocation.problem import Problem
from interpress.allocation.registry import ALLOCATIONS
from interpress.budgets.budget import Budget
from interpress.calibration.study import Study
from interpress.data.batches import batch_size, take
from interpress.data.part import Part
from interpress.evaluation.held_out_loss import loss_name
from interpress.evaluation.run_cost import RunCost, run_cost
from interpress.evaluation.tally import Agreement
from interpress.method import Method
from interpress.network.network import Network
from interpress.network.tap_errors import TapError, tap_error
from interpress.onnx_files.compare import OnnxReport, compare_files
from interpress.pipeline.left_whole import of_same_widths
from interpress.pipeline.options import Options
from interpress.pipeline.steps import state_problem
from interpress.selection.orders import Orders
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.cost import Cost
from interpress.spaces.spaces import Spaces

_CURVE_POINTS = 50
_NOT_CERTIFIED = (
    "The certificate of error= is about T. The refit replaced the weights that absorb T, so it "
    "does not cover this network."
)
_ONNX_EXAMPLES = 16  # that two ONNX files are compared on


@dataclass(frozen=True)
class SpacePlan:
    """One space before and after."""

    name: str
    before: int
    after: int
    kept: tuple[int, ...] = field(repr=False)
    error: float
    """Largest `||Z - Z[:, kept] @ T||_2 / ||Z||_2` over the taps of the space. If rows are few
    and `T` is regularized, it is that of rows which were not fitted."""
    bound: float | None
    """The smallest error that any rank-k approximation has at that tap (from the SVD). None if the
    network was built block by block and the tap is wider than 2,048 columns."""

    @property
    def ratio(self) -> float | None:
        """The error over the SVD bound; 1 is the best possible. None if the bound is not known."""
        if self.bound is None:
            return None
        return self.error / self.bound if self.bound > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """A compressed network with everything that is known about it."""

    options: Options = field(repr=False)
    study: Study = field(repr=False)
    effects: Effects | None = field(repr=False)
    network: Network = field(repr=False)

    @property
    def budget(self) -> Budget:
        """What was asked for."""
        assert self.options.budget is not None
        return self.options.budget

    @property
    def method(self) -> Method:
        """How it was compressed."""
        return self.options.method

    @property
    def seed(self) -> int:
        """The seed that drew held-out examples and rows."""
        return self.study.seed

    @cached_property
    def spaces(self) -> Spaces:
        """The channel spaces of the original; frozen are also those that the options keep whole."""
        same_widths = self.options.limits.same_widths
        return of_same_widths(self.study) if same_widths else self.study.spaces

    @property
    def original(self) -> nn.Module:
        """The original network."""
        return self.study.original if self.part is None else self.part.whole

    @cached_property
    def model(self) -> nn.Module:
        """The smaller network: an ordinary network of the original's classes.

        With `lowrank=True`, some layers may be an `nn.Sequential` of two. With `part=`, it is a
        copy of the whole with a smaller part.
        """
        smaller = self.network.model
        return smaller if self.part is None else self.part.with_smaller(smaller)

    @property
    def part(self) -> Part | None:
        """The module that was compressed, if that is not the whole model."""
        return self.options.part

    @property
    def orders(self) -> Orders:
        """The order in which every space keeps its channels."""
        return self.network.plan.orders

    @property
    def allocation(self) -> str:
        """The allocation that was built: the best of those that were compared."""
        comparison = self.network.comparison
        usual = self.options.method.candidates[0]
        return usual if comparison is None else comparison.best

    @property
    def widths(self) -> Mapping[str, int]:
        """Per shrinkable space, how many channels it keeps."""
        return self.network.plan.widths

    @property
    def ranks(self) -> Mapping[str, int]:
        """The rank of every layer that became two thin ones, by name; see `lowrank=`."""
        return self.network.ranks

    @property
    def agreement(self) -> Agreement | None:
        """Agreement with the original on held-out calibration data."""
        return self.network.agreement

    @property
    def latency(self) -> float | None:
        """Measured run time relative to the original, if that was the budget."""
        return self.network.latency

    @property
    def measured_latency(self) -> float | None:
        """Measured run time relative to the original, if it was measured for any reason."""
        low_rank = self.network.low_rank
        if self.latency is not None or low_rank is None or low_rank.latency is None:
            return self.latency
        return low_rank.latency[0]

    @cached_property
    def run_cost(self) -> RunCost | None:
        """Measured run time and memory of both networks on a batch of calibration data.

        None without data, and for a network that was compressed block by block.
        """
        data = self.study.data
        if data is None or self.study.walk is not None:
            return None
        limit = examples_per_batch(self.spaces, data.device)
        example = next(iter(data.gathered("held", limit))).at_home(self.study.original)
        return run_cost(self.network.model, self.study.original, example)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing about how this network was made, as sentences."""
        loss = loss_name(self.agreement)
        notes = [] if self.part is None else [self._of_part(self.part)]
        notes += self.network.warnings
        budget = self.options.budget
        if self.network.refit_kept and budget is not None and budget.kind == "error":
            notes.append(_NOT_CERTIFIED)
        if self.network.plan.kept == {} and not self.network.ranks:
            notes.append("Nothing was removed: no smaller network meets what was asked for.")
        if self.network.comparison is not None:
            notes.append(f"Allocation: {self.network.comparison.described(loss)}.")
        if self.network.low_rank is not None:
            notes.append(self.network.low_rank.described(loss))
        if self.network.distillation is not None:
            notes.append(str(self.network.distillation))
        untrusted = [name for name in self.orders.untrusted if name not in self.network.plan.kept]
        if untrusted:
            names, why = ", ".join(untrusted), self.orders.untrusted[untrusted[0]]
            notes.append(f"Left whole, because the examples say too little: {names} ({why}).")
        return tuple(notes)

    @cached_property
    def onnx(self) -> OnnxReport | None:
        """How the smaller network compares with the ONNX file that the original was read from.

        None if it was not read from one, or ONNX Runtime is not installed. Both run in ONNX Runtime
        on held-out examples.
        """
        evaluator = None if self.study.data is None else self.study.evaluator()
        example = self.spaces.program.example
        if evaluator is not None:
            first = next(iter(evaluator.examples()))
            example = take(first, torch.arange(min(batch_size(first), _ONNX_EXAMPLES)))
        return compare_files(self.original, self.model, example)

    def _of_part(self, part: Part) -> str:
        before, after = (
            sum(parameter.numel() for parameter in model.parameters())
            for model in (self.original, self.model)
        )
        return (
            f"Costs, errors and agreement are those of the part {part.name!r}; the rest of "
            f"{type(part.whole).__name__} is as it was, and {after / before:.1%} of all its "
            "parameters are left. Measure what the whole model decides before you use it."
        )

    @property
    def judged_on(self) -> str:
        """The examples that `agreement` is measured on."""
        if self.study.data is None or self.study.data.holds_out:
            return "on held-out examples"
        return "on the examples that were fitted, which are too few to hold any out"

    @cached_property
    def before(self) -> Cost:
        """What the original costs, per example."""
        return _per_example(self.spaces.cost(), self.spaces)

    @cached_property
    def after(self) -> Cost:
        """What the smaller network costs, per example."""
        cost = self.spaces.cost(self.widths)
        if self.network.low_rank is not None:
            cost = self.network.low_rank.reduced(cost)
        return _per_example(cost, self.spaces)

    @property
    def flops(self) -> float:
        """The fraction of the FLOPs that is left."""
        return self.after.flops / self.before.flops

    @property
    def params(self) -> float:
        """The fraction of the parameters that is left."""
        return self.after.parameters / self.before.parameters

    @cached_property
    def plan(self) -> tuple[SpacePlan, ...]:
        """Per shrinkable space: widths, kept channels, error, and its ratio to the SVD's."""
        return tuple(self._space_plan(name) for name in self.widths)

    @cached_property
    def curve(self) -> list[Point]:
        """The predicted trade-off that this result is a point of."""
        path = ALLOCATIONS[self.allocation].path
        return trade_off(self._problem, path(self._problem), _CURVE_POINTS)

    @cached_property
    def point(self) -> Point:
        """This result on that curve."""
        return point_at(self._problem, self.widths)

    @cached_property
    def _problem(self) -> Problem:
        return state_problem(
            self.study,
            self.orders,
            self.effects,
            self.options,
            allocation=self.allocation,
            resource="flops",
        )

    @cached_property
    def _tap_errors(self) -> dict[str, TapError]:
        """Per tap that loses columns, its relative error and the smallest possible one."""
        if self.network.errors is not None:
            return dict(self.network.errors)
        lost = {tap for name in self.network.cut.kept for tap in self.spaces[name].taps}
        errors = {}
        for name, halves in self.study.statistics.halves.items():
            tap = self.spaces.taps[name]
            columns = self.network.cut.columns(tap)
            if name in lost and len(columns) < tap.size:
                errors[name] = tap_error(tap, columns, halves, self.method.regularize)
        return errors

    def _space_plan(self, name: str) -> SpacePlan:
        space, kept = self.spaces[name], self.network.cut.kept
        channels = tuple(kept[name].tolist()) if name in kept else tuple(range(space.size))
        errors = [self._tap_errors[tap] for tap in space.taps if tap in self._tap_errors]
        worst = max(errors, default=(0.0, 0.0), key=lambda error: error[0])
        gone = _gone_with_groups(space, self.spaces, kept)
        left = tuple(channel for channel in channels if channel not in gone)
        return SpacePlan(name, space.size, len(left), left, *worst)


def _per_example(cost: Cost, spaces: Spaces) -> Cost:
    """Return the cost of the captured batch divided by its number of examples."""
    count = captured_examples(spaces)
    return Cost(cost.flops // count, cost.parameters, cost.activation_bytes // count)


def groups_of(space: ChannelSpace, spaces: Spaces) -> ChannelSpace | None:
    """Return the space of the groups that some heads belong to, if whole groups can go as well."""
    for groups in spaces if space.in_groups else ():
        if groups.heads and not groups.in_groups and set(groups.taps) & set(space.taps):
            return groups
    return None


def _gone_with_groups(space: ChannelSpace, spaces: Spaces, kept: Mapping[str, Tensor]) -> set[int]:
    """Return the heads of a space that went with the key and value that they shared."""
    groups = groups_of(space, spaces)
    if groups is None or groups.name not in kept:
        return set()
    gone = ~torch.isin(space.cells, kept[groups.name].cpu())
    return set(torch.nonzero(gone).reshape(-1).tolist())

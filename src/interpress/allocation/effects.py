"""Measure how much the output changes when one space alone is shrunk.

The error that a space's consumers see says little about the decisions of the network. So every
space is shrunk alone on a few examples. Only the operators after the space run again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from interpress.calibration.study import Study
from interpress.graph.executor import Before, Executor, Frame
from interpress.graph.program import Program
from interpress.progress import Display
from interpress.selection.orders import ChannelOrder, Orders
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.read_sites import by_node, operand_of, with_operand
from interpress.surgery.cut import Cut

Effects = Mapping[str, list[tuple[int, float]]]
"""Per space: widths, and the distance of the outputs at that width from the original's."""

EXAMPLES = 16
"""Examples on which an effect is measured."""
_FRACTIONS = (0.5,)
"""Widths to measure, as fractions of a space. One point is enough for one factor per space."""


def measure_effects(study: Study, orders: Orders, bars: Display) -> Effects:
    """Return the effect of every space on the outputs, shrunk alone."""
    program = study.spaces.program
    executor = Executor(program)
    examples = study.few_examples(EXAMPLES)
    recorded = [executor.record(example) for example in examples]
    reference = [_outputs(program, frame) for frame in recorded]
    effects: dict[str, list[tuple[int, float]]] = {}
    with bars.task("measuring spaces", len(orders)) as advance:
        for name, order in orders.items():
            effects[name] = []
            for width in trial_widths(study.spaces[name]):
                outputs = _rerun(study, executor, recorded, name, order, width)
                distance = study.meaning.distance(reference, outputs, examples)
                effects[name].append((width, distance))
            advance(1)
    return effects


def trial_widths(space: ChannelSpace) -> list[int]:
    """Return the widths at which the effect of a space is measured."""
    widths = [max(space.step, round(f * space.size / space.step) * space.step) for f in _FRACTIONS]
    return sorted(set(widths) - {space.size})


def _rerun(
    study: Study,
    executor: Executor,
    recorded: Sequence[Frame],
    name: str,
    order: ChannelOrder,
    width: int,
) -> list[list[Tensor]]:
    """Return the outputs per batch with the taps of one space replaced by interpolations."""
    sites, before = replacing(study, name, order, width)
    changed = [executor.rerun(frame, sites, before) for frame in recorded]
    return [_outputs(study.spaces.program, frame) for frame in changed]


def replacing(
    study: Study, name: str, order: ChannelOrder, width: int
) -> tuple[Collection[fx.Node], Before]:
    """Return the nodes that read one space, and a hook that replaces what they read."""
    spaces, kept = study.spaces, {name: order.kept(width)}
    cut = Cut(spaces, kept, study.interpolations(kept))
    sites = by_node([tap for tap in spaces.taps.values() if tap.name in cut.T])

    def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
        for tap, site in sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            replaced = tap.replaced(operand, site, cut.columns(tap), cut.T[tap.name])
            args, kwargs = with_operand(node, args, kwargs, site, replaced)
        return args, kwargs

    return sites, before


def _outputs(program: Program, frame: Frame) -> list[Tensor]:
    """Return the output tensors in flattening order."""
    values = [frame[node] for node in program.output_nodes() if node in frame]
    return [value for value in values if isinstance(value, Tensor)]

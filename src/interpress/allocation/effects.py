"""Measure how much the output changes when one space alone is shrunk.

The error that a space's consumers see says little about the decisions of the network. So every
space is shrunk alone on a few examples. Only the operators after the space run again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from interpress.calibration.streamed import blocks_of
from interpress.calibration.study import Study
from interpress.graph.blocks import Block
from interpress.graph.executor import Before, Executor, Frame
from interpress.graph.program import Program
from interpress.progress import Display
from interpress.selection.orders import ChannelOrder, Orders
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.read_sites import by_node, operand_of, with_operand
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut

Effects = Mapping[str, list[tuple[int, float]]]
"""Per space: widths, and the distance of the outputs at that width from the original's."""

_EXAMPLES = 16
_FRACTIONS = (0.5,)
"""Widths to measure, as fractions of a space. One point is enough for one factor per space."""


def measure_effects(study: Study, orders: Orders, bars: Display) -> Effects:
    """Return the effect of every space on the outputs, shrunk alone."""
    if study.statistics.by_block:
        return _measured_by_block(study, orders, bars)
    program = study.spaces.program
    executor = Executor(program)
    examples = study.few_examples(_EXAMPLES)
    recorded = [executor.record(example) for example in examples]
    reference = [_outputs(program, frame) for frame in recorded]
    effects: dict[str, list[tuple[int, float]]] = {}
    with bars.task("measuring spaces", len(orders)) as advance:
        for name, order in orders.items():
            effects[name] = []
            for width in _trial_widths(study.spaces[name]):
                outputs = _rerun(study, executor, recorded, name, order, width)
                distance = study.meaning.distance(reference, outputs, examples)
                effects[name].append((width, distance))
            advance(1)
    return effects


def _trial_widths(space: ChannelSpace) -> list[int]:
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
    sites, before = _replacing(study, name, order, width)
    changed = [executor.rerun(frame, sites, before) for frame in recorded]
    return [_outputs(study.spaces.program, frame) for frame in changed]


def _replacing(
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


def _measured_by_block(study: Study, orders: Orders, bars: Display) -> Effects:
    """Return the same effects from one walk over the blocks of the network.

    Of the original and of every network with one smaller space, only the values between two blocks
    are held. All of these networks walk through a block before the next one is looked at.
    """
    program, executor = study.spaces.program, Executor(study.spaces.program)
    examples = study.few_examples(_EXAMPLES)
    original = [executor.frame(example) for example in examples]
    changed: dict[tuple[str, int], list[Frame]] = {}
    with bars.task("measuring spaces", len(orders)) as advance:
        for block in blocks_of(study.spaces):
            begun: dict[tuple[str, int], list[Frame]] = {}
            names = [name for name in orders if _is_read_in(block, study.spaces, name)]
            for name in names:
                for width in _trial_widths(study.spaces[name]):
                    _, before = _replacing(study, name, orders[name], width)
                    begun[name, width] = [_branch(frame) for frame in original]
                    for frame, start in zip(begun[name, width], original, strict=True):
                        shared = frozenset(start.values)
                        executor.advance(frame, block.nodes, before=before, protected=shared)
                advance(1)
            for frame in itertools.chain(original, *changed.values()):
                executor.advance(frame, block.nodes)
            changed |= begun
    reference = [_outputs(program, frame) for frame in original]
    effects: dict[str, list[tuple[int, float]]] = {name: [] for name in orders}
    for (name, width), frames in changed.items():
        outputs = [_outputs(program, frame) for frame in frames]
        effects[name].append((width, study.meaning.distance(reference, outputs, examples)))
    return effects


def _is_read_in(block: Block, spaces: Spaces, name: str) -> bool:
    first = spaces.taps[spaces[name].taps[0]]
    return first.sites[0].op.node in block


def _branch(frame: Frame) -> Frame:
    """Return a frame that goes on from where another one is."""
    return Frame(dict(frame.values), frame.background)


def _outputs(program: Program, frame: Frame) -> list[Tensor]:
    """Return the output tensors in flattening order."""
    values = [frame[node] for node in program.output_nodes() if node in frame]
    return [value for value in values if isinstance(value, Tensor)]

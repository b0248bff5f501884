"""How much the outputs really change when one space alone is shrunk: measured, not predicted.

The error a space's readers see says little about what it does to the decisions. So each space is
shrunk alone on a few examples, and its error curve is scaled to fit. Only
what comes after the space is run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example
from interpress.graph.executor import evaluate
from interpress.graph.program import Program, writes
from interpress.linalg.factor import RFactor
from interpress.selection.orders import ChannelOrder
from interpress.selection.profile import Profile
from interpress.spaces.read_sites import by_node, operand_of, with_operand
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolations

SHARES = (0.5,)
POWER = 0.1  # how far to believe what so few examples say
Measured = dict[str, list[tuple[int, float]]]
"""Per space: widths and the divergence measured there."""


def measure_effects(
    spaces: Spaces,
    orders: Mapping[str, ChannelOrder],
    factors: Mapping[str, RFactor],
    example: Example,
    judge: OutputMeaning,
    done: Callable[[], None] = lambda: None,
) -> Measured:
    """The divergence of the outputs with each space alone at a few widths."""
    values = _all_values(spaces.program, example)
    last = spaces.program.last_use()
    reference = _output(spaces.program, values, {}, judge)
    found: Measured = {}
    for name, order in orders.items():
        space = spaces[name]
        widths = [max(space.step, round(s * space.size / space.step) * space.step) for s in SHARES]
        found[name] = []
        for width in sorted(set(widths) - {space.size}):
            kept = {name: order.kept(width)}
            cut = Cut(spaces, kept, interpolations(spaces, kept, factors))
            output = _output(spaces.program, values, _rerun(spaces, cut, values, last), judge)
            found[name].append((width, judge.distance(reference, output)))
        done()
    return found


def factor_of(profile: Profile, order: ChannelOrder, measured: list[tuple[int, float]]) -> float:
    """How much more a space's error does to the outputs than its size says: one factor.

    A few examples measure it roughly, so it is drawn towards one, on the scale of factors.
    """
    found = [(effect, profile.squared_error(order.units, width)) for width, effect in measured]
    logs = [
        math.log(effect / error)
        for effect, error in found
        if effect > 0 and error > 0 and math.isfinite(effect)
    ]
    return math.exp(POWER * sum(logs) / len(logs)) if logs else 1.0


def _all_values(program: Program, example: Example) -> dict[fx.Node, Any]:
    """The value of every node, safe from operators that write into their inputs."""
    values: dict[fx.Node, Any] = {}
    overwritten = any(writes(node) for node in program.nodes)

    def see(node: fx.Node, value: Any) -> None:
        copy_with = overwritten and isinstance(value, Tensor) and node.op == "call_function"
        values[node] = value.clone() if copy_with else value

    program.run(example, see=see)
    return values


def _rerun(
    spaces: Spaces,
    cut: Cut,
    values: Mapping[fx.Node, Any],
    last: Mapping[fx.Node, Sequence[fx.Node]],
) -> dict[fx.Node, Any]:
    """The outputs that change when the taps of a cut are replaced by their interpolations."""
    taps = [tap for tap in spaces.taps.values() if tap.name in cut.T]
    sites = by_node(taps)
    changed: dict[fx.Node, Any] = {}
    for node in spaces.program.nodes:
        if node.op != "call_function":
            continue
        if node not in sites and not any(i in changed for i in node.all_input_nodes):
            continue
        args, kwargs = fx.node.map_arg(
            (node.args, node.kwargs), lambda n: changed[n] if n in changed else values[n]
        )
        for tap, site in sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            replaced = tap.replaced(operand, site, cut.columns(tap), cut.T[tap.name])
            args, kwargs = with_operand(node, args, kwargs, site, replaced)
        if writes(node):  # into copies of its own
            args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)
        changed[node] = evaluate(node, args, kwargs)
        for done in last.get(node, ()):
            changed.pop(done, None)
    return changed


def _output(
    program: Program,
    values: Mapping[fx.Node, Any],
    changed: Mapping[fx.Node, Any],
    judge: OutputMeaning,
) -> Tensor:
    leaves = [leaf for leaf in program.output_nodes() if isinstance(values.get(leaf), Tensor)]
    node = leaves[judge.place]
    return changed.get(node, values[node])

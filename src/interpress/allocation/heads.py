"""Spaces of attention heads in an allocation: groups that share a key and a value, and their heads.

A layer keeps the product of two fractions of its heads: that of its groups, and that of the heads
within every group. So an allocation that treats all spaces alike must let one of the two wait.
"""

from __future__ import annotations

from interpress.allocation.problem import Problem

SPARED = 0.5
"""Spaces that wait are whole while the others keep more than this fraction."""


def heads_of_groups(problem: Problem) -> set[str]:
    """Return the spaces of heads within groups, where whole groups can shrink as well."""
    spaces = {name: problem.spaces[name] for name in problem.allowed}
    taps = {
        tap
        for space in spaces.values()
        if space.heads and not space.in_groups
        for tap in space.taps
    }
    return {n for n, space in spaces.items() if space.in_groups and taps & set(space.taps)}


def other_heads(problem: Problem) -> set[str]:
    """Return all other spaces of heads."""
    heads = {name for name in problem.allowed if problem.spaces[name].heads}
    return heads - heads_of_groups(problem)

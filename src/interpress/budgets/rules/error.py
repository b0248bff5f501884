"""Widths for an error per layer that is certified, not estimated."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from interpress.allocation.problem import Problem, Widths
from interpress.pipeline.study import Study
from interpress.surgery.interpolations import tap_orderings


def certified_widths(knowledge: Study, problem: Problem, eps: float) -> Widths:
    """The smallest widths with `||Z - Z[:, kept] @ T||_2 <= eps * ||Z||_2` at every tap."""
    widths = {name: _smallest(knowledge, problem, name, eps) for name in problem.orders}
    while True:  # spaces that share a tap can be too narrow together
        kept = {
            name: problem.orders[name].kept(width)
            for name, width in widths.items()
            if width < knowledge.spaces[name].size
        }
        bad = _uncertified(knowledge, kept, eps)
        if not bad:
            return widths
        for name in bad:
            allowed = problem.allowed[name]
            widths[name] = allowed[max(0, allowed.index(widths[name]) - 1)]


def _smallest(knowledge: Study, problem: Problem, name: str, eps: float) -> int:
    readings = knowledge.profiles[name].readings
    orderings = [(r.ordering(problem.orders[name].units), r.per_unit) for r in readings]
    allowed = problem.allowed[name]  # widest first; errors fall with width
    dtype = knowledge.model_dtype
    low, high = 0, len(allowed)  # allowed[low] holds, allowed[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        columns = allowed[middle]
        if all(o.certified(columns * per, eps, dtype) for o, per in orderings):
            low = middle
        else:
            high = middle
    return allowed[low]


def _uncertified(knowledge: Study, kept: Mapping[str, torch.Tensor], eps: float) -> set[str]:
    bad: set[str] = set()
    for tap, (ordering, found) in tap_orderings(
        knowledge.spaces, kept, knowledge.seen.factors
    ).items():
        if not ordering.certified(found.k, eps, knowledge.model_dtype):
            bad |= {name for name in kept if tap in knowledge.spaces[name].taps}
    return bad

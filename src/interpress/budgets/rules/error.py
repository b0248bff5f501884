"""`error=0.1`: the smallest widths with a certified relative error of 10 % in every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interpress.budgets.registry import budget
from interpress.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from interpress.allocation.problem import Problem, Widths
    from interpress.budgets.search import Search
    from interpress.calibration.study import Study
    from interpress.method import Method
    from interpress.network.network import Network


def _without_refit(method: Method, named: bool) -> Method:
    """Turn the refit of a named method off: the certificate is about `T`, which a refit replaces.

    A `Method` that the user wrote keeps its refit. `T` is plain least squares, which the
    certificate is about.
    """
    if not method.correct:
        raise ArgumentError(
            "error= certifies the error of T, and correct=False leaves T out; ask for flops= or "
            "width=, or leave correct at True"
        )
    method = replace(method, regularize=False)
    return replace(method, refit=False) if named else method


@budget(
    "error",
    meaning="largest relative error per layer, certified",
    example=0.1,
    below_one=True,
    prepare=_without_refit,
)
def error(search: Search, value: float) -> Network:
    """Build the smallest widths with `||Z - Z[:, kept] @ T||_2 <= value * ||Z||_2` at every tap."""
    return search.build(certified_widths(search.study, search.problem, value))


def certified_widths(study: Study, problem: Problem, eps: float) -> Widths:
    """Return the smallest widths whose error is certified at every tap."""
    groups = {name: problem.members.get(name, (name,)) for name in problem.orders}
    widths = {
        name: max(_smallest(study, problem, member, name, eps) for member in group)
        for name, group in groups.items()
    }
    while True:  # spaces that share a tap can be too narrow together
        uncertified = _uncertified(study, problem.plan(widths).kept, eps)
        too_narrow = [name for name, group in groups.items() if uncertified & set(group)]
        if not too_narrow:
            return widths
        for name in too_narrow:
            allowed = problem.allowed[name]
            widths[name] = allowed[max(0, allowed.index(widths[name]) - 1)]


def _smallest(study: Study, problem: Problem, name: str, group: str, eps: float) -> int:
    """Bisect the allowed widths of one space; the error decreases with the width."""
    orders = problem.every_order or problem.orders
    views = orders.profiles[name].views
    units = orders[name].units
    orderings = [(view.ordering(units), view.widths(units)) for view in views]
    allowed = problem.allowed[group]  # widest first
    low, high = 0, len(allowed)  # allowed[low] is certified, allowed[high] is not
    while high - low > 1:
        middle = (low + high) // 2
        width = allowed[middle]
        if all(o.is_certified(int(w[width]), eps, study.dtype) for o, w in orderings):
            low = middle
        else:
            high = middle
    return allowed[low]


def _uncertified(study: Study, kept: Mapping[str, Tensor], eps: float) -> set[str]:
    """Return the spaces with a tap whose error is not certified, looking at one tap at a time."""
    from interpress.surgery.cut import Cut
    from interpress.surgery.interpolations import tap_ordering

    cut, too_narrow = Cut(study.spaces, kept), set[str]()
    for name, halves in study.statistics.halves.items():
        tap, members = study.spaces.taps[name], {s for s in kept if name in study.spaces[s].taps}
        columns = cut.columns(tap)
        if members and len(columns) < tap.size:
            ordering, interpolation = tap_ordering(tap, columns, halves.factor)
            if not ordering.is_certified(interpolation.k, eps, study.dtype):
                too_narrow |= members
    return too_narrow

"""Say what a user must know about a network before it is used: what failed, and what would not."""

from __future__ import annotations

import math

from interpress.budgets.search import Search
from interpress.calibration.study import Study
from interpress.data.calibration_set import Part
from interpress.errors import ArgumentError, warn_user
from interpress.evaluation.tally import Agreement
from interpress.method import Method
from interpress.network.compare import cut_of, is_enough_held_out
from interpress.network.network import Network
from interpress.surgery.weights import shrunk_copy

_RESOLUTION = 1 / 16 + 1e-3  # of the budget that holds; a network is built to halve what is left
_HALF = 0.5  # of the decisions: a network that keeps fewer is of no use
RUINED = "the smaller network is of no use"
"""How the warning about a ruined network starts."""
_BLAMED = 3  # spaces that a warning names


class RuinedWarning(UserWarning):
    """The smaller network decides no better than a constant prediction, or hardly better."""

    def __init__(self, message: str, hint: str = "") -> None:
        """Say what is wrong; `hint`, what to do about it, is the end of the message."""
        super().__init__(message)
        self.hint = hint


class FewExamplesWarning(UserWarning):
    """A space had to shrink although the examples say too little about it."""


def warn_about(search: Search, network: Network) -> tuple[str, ...]:
    """Warn about a ruined network and about untrusted spaces; return these sentences."""
    found: list[UserWarning] = []
    untrusted, ruined = _untrusted(network, search.method), _ruined(search, network)
    if untrusted is not None:
        found.append(FewExamplesWarning(untrusted))
    if ruined is not None:
        found.append(ruined)
    for warning in found:
        warn_user(warning)
    return tuple(map(str, found))


def _untrusted(network: Network, method: Method) -> str | None:
    orders = network.plan.orders
    untrusted = orders.untrusted
    if network.plan.kept and not method.correct and len(untrusted) == len(orders):
        example = next(iter(untrusted))
        return (
            f"the examples say too little to interpolate any space ({example}: "
            f"{untrusted[example]}). Filters of largest norm are kept, the same fraction "
            "everywhere, and only gains and biases are corrected; give more examples"
        )
    shrunk = [name for name in untrusted if name in network.plan.kept]
    if not shrunk or not method.correct:
        return None
    more = f" and {len(shrunk) - 1} more" if len(shrunk) > 1 else ""
    if not method.needs_trust:
        return (
            f"the examples say too little about {shrunk[0]!r}{more} ({untrusted[shrunk[0]]}), so T "
            "fits noise there; give more examples, or use regularize=True"
        )
    return (
        f"the budget cannot be met without shrinking {shrunk[0]!r}{more}, about which the examples "
        f"say too little ({untrusted[shrunk[0]]}); give more examples, or ask for a larger network"
    )


def _ruined(search: Search, network: Network) -> RuinedWarning | None:
    if network.agreement is None or not network.plan.kept:
        return None
    agreement = _on_enough(search.study, network)
    problem = ruin(agreement)
    if problem is None:
        return None
    blamed = _blamed(search, network)
    spaces = ", ".join(f"{name} ({after} of {before} left)" for name, before, after in blamed)
    if not is_enough_held_out(search.study) and search.study.data is not None:
        problem += ", measured on all calibration examples, since few are held out"
    sentence, hint = (
        f"{RUINED}: {problem}. The spaces that lose most are {spaces}",
        _remedy(search, network),
    )
    return RuinedWarning(f"{sentence}. {hint}", hint)


def ruin(agreement: Agreement) -> str | None:
    """Return in which way a network is ruined; None if it is not."""
    if agreement.tokens is not None:
        (before, after), frequencies = agreement.tokens.perplexity, agreement.tokens.unigram
        if after < frequencies or before >= frequencies:  # or the original is of no use either
            return None
        return (
            f"its perplexity is {after:.4g}, and always predicting the frequencies of the tokens "
            f"gives {frequencies:.4g}"
        )
    if agreement.agreement is None:
        error = agreement.output_error
        if error is None or error < 1:
            return None
        return f"its output error is {error:.3g}, and predicting the mean gives 1"
    decisions = sum(row.count for row in agreement.per_class)
    constant = max((row.count for row in agreement.per_class), default=0) / max(decisions, 1)
    if agreement.agreement >= max(constant, _HALF) or agreement.agreement == 1.0:
        return None
    compared = (
        f"always deciding alike gives {constant:.0%}"
        if agreement.agreement < constant
        else f"fewer than half; always deciding alike gives {constant:.0%}"
    )
    return f"it makes {agreement.agreement:.0%} of the original's decisions ({compared})"


def _on_enough(study: Study, network: Network) -> Agreement:
    """Return the agreement on held-out examples, or on all examples if those are few."""
    assert network.agreement is not None
    if is_enough_held_out(study) or study.data is None:
        return network.agreement
    return study.evaluator("all").agreement(network.model)


def _blamed(search: Search, network: Network) -> list[tuple[str, int, int]]:
    """Return the spaces with the largest predicted loss, and their widths before and after."""
    losses, widths = search.problem.losses, network.plan.widths
    named = [name for name in network.plan.kept if name in losses]  # or the first of a group
    shrunk = sorted(named, key=lambda name: -float(losses[name][widths[name]]))
    return [(name, search.study.spaces[name].size, widths[name]) for name in shrunk[:_BLAMED]]


def _remedy(search: Search, ruined: Network) -> str:
    """Return the smallest fraction of the FLOPs that holds, from a bisection without refits.

    Smaller networks than the ruined one are not tried. A large network is not built that often.
    """
    if search.study.walk is not None:
        return "Ask for a larger network, or give more examples"
    resource = "flops"
    meter = search.study.spaces.cost.meter(resource)
    low, high, holds = meter.total(ruined.plan.widths) / meter.total({}), 1.0, None
    while high - low > _RESOLUTION:
        fraction = (low + high) / 2
        if _holds(search, fraction, resource):
            high = holds = fraction
        else:
            low = fraction
    if holds is None:
        return "No smaller network holds; leave these spaces out with exclude="
    rounded_up = math.ceil(100 * holds) / 100
    return f"The nearest budget that holds is about {resource}={rounded_up:g}"


def _holds(search: Search, fraction: float, resource: str) -> bool:
    """Return whether the network of a budget is of use before a refit. It is not proved."""
    study = search.study
    try:
        plan = search.problem.plan(search.usual_widths(fraction, resource))
    except ArgumentError:
        return False
    model = shrunk_copy(cut_of(study, plan, search.method))
    part: Part = "held" if is_enough_held_out(study) else "all"
    return ruin(study.evaluator(part).agreement(model)) is None

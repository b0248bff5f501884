"""Whether to ship a result: rules that are printed on the page, and what they give here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from interpress.evaluation.tally import wilson
from interpress.network.compare import ENOUGH_TEXTS
from interpress.pipeline.warn import RUINED
from interpress.report.check import LIMIT, Check
from interpress.report.data_rules import distinct_examples, informative_decisions
from interpress.report.facts import Facts
from interpress.report.numbers import count, percent, plural
from interpress.report.prediction import predict
from interpress.report.rules import (
    FEW_IN_COMMON,
    accuracy,
    independence,
    no_warnings,
    other_outputs,
    run_time,
    surgery,
    warnings_of,
    weights_given,
)

_CHANCE = 0.05  # how often a class is said to suffer although all classes are alike
_MOST_NEEDED = 10_000_000  # examples; more are never suggested


@dataclass(frozen=True)
class Verdict:
    """What to do with a result."""

    level: str
    """"ship", "confirm" (one measurement is missing), "look" or "stop"."""
    headline: str
    checks: tuple[Check, ...]

    @property
    def to_do(self) -> list[str]:
        """What the reader should still do, as sentences."""
        wanted = [c.remedy for c in self.checks if not c.passed and c.remedy]
        measure = "Measure the run time on the device that it will run on; the one here is that of "
        measure += "the machine that made the report"
        if any(check.is_undecided for check in self.checks):
            measure += ", and it varies too much to tell which network is faster"
        return [*dict.fromkeys(wanted), f"{measure}."]


def verdict_of(facts: Facts) -> Verdict:
    """Return the verdict: the worst of all checks decides."""
    checks = tuple(_checks(facts))
    ruined = next((w for w in warnings_of(facts) if w.startswith(RUINED)), None)
    failed = [check for check in checks if check.failed]
    serious = [check for check in failed if not check.is_final]
    if ruined is not None:
        return Verdict("stop", "Do not ship it: the smaller network is of no use.", checks)
    if any(check.is_of_data for check in serious):
        headline = (
            "Do not ship it on this evidence: the original or the examples cannot show whether "
            "decisions stay the same."
        )
        return Verdict("look", headline, checks)
    if serious:
        named = f"{len(serious)} of {plural(len(checks), 'check')} did not pass"
        return Verdict("look", f"Do not ship it as it is: {named}.", checks)
    if failed:
        headline = (
            "Ship it if one more measurement holds: all checks passed, but interpress has used the "
            "data that it was judged on."
        )
        return Verdict("confirm", headline, checks)
    if any(check.is_undecided for check in checks):
        headline = "Ship it: all checks passed, but whether it runs faster is undecided."
        return Verdict("ship", headline, checks)
    return Verdict("ship", "Ship it: all checks passed.", checks)


def _checks(facts: Facts) -> Iterator[Check]:
    judged = facts.judged
    if judged is None:
        yield Check(
            "It was compared with the original.", "No data were given to compare on.", False,
            "Compare both networks with interpress evaluate.",
        )  # fmt: skip
    else:
        yield _change(facts)
        yield from accuracy(facts)
        yield from other_outputs(facts)
        yield from _tokens(facts)
        yield _not_fitted(facts)
        yield from distinct_examples(facts)
        yield from informative_decisions(facts)
        yield from _classes(facts)
    yield from run_time(facts)
    yield from weights_given(facts)
    yield surgery(facts)
    yield no_warnings(facts)
    if judged is not None:
        yield independence(facts)


def _change(facts: Facts) -> Check:
    assert facts.judged is not None
    asked = facts.record["asked"]
    if facts.perplexity is not None:
        before, after = facts.perplexity
        limit = asked["value"] if asked["budget"] == "perplexity" else 1 + LIMIT
        worst, end = after / before, ""
        if interval := facts.judged["tokens"].get("interval"):
            worst = float(interval[1])
            end = f"; at the worse end of the 95 % interval {worst:.3f} times"
        return Check(
            f"The perplexity is at most {limit:.4g} times that of the original"
            f"{', at the worse end of the 95 % interval' if end else ''}.",
            f"{after / before:.3f} times ({before:.4g} before, {after:.4g} after){end}.",
            worst <= limit,
            _larger(facts),
        )
    if facts.judged["agreement"] is None:
        error = facts.judged["output_error"]
        return Check(
            f"The output error is at most {percent(LIMIT, 0)} of the standard deviation of the "
            "outputs.",
            "It is not finite." if error is None else f"{percent(error)}.",
            error is not None and error <= LIMIT,
            _larger(facts),
        )
    return _decisions(facts, float(facts.judged["agreement"]), asked)


def _tokens(facts: Facts) -> Iterator[Check]:
    """Yield whether the text says enough about a language model."""
    assert facts.judged is not None
    if facts.perplexity is None:
        return
    before, unigram = facts.perplexity[0], facts.judged["tokens"]["unigram"]
    texts = int(facts.judged["examples"])
    rule = (
        f"It was judged on at least {ENOUGH_TEXTS} texts, and the original predicts them better "
        "than the frequencies of their tokens do."
    )
    found = f"{plural(texts, 'text')}; the original has perplexity {before:.4g} on them, and the "
    found += f"frequencies of their tokens alone would have {unigram:.4g}"
    if before >= unigram:
        remedy = (
            "The original itself does not predict these texts: check that weights, tokenizer and "
            "texts belong together, and judge on texts of the kind that the model is for."
        )
        yield Check(rule, f"{found}: the original is of no use on them.", False, remedy)
        return
    remedy = "Calibrate and judge on more text of the kind that the model is for."
    yield Check(rule, f"{found}.", texts >= ENOUGH_TEXTS, remedy)


def _larger(facts: Facts, needed: float | None = None) -> str:
    """Return how to change less; `needed` is a predicted fraction of the FLOPs, if known."""
    keep = "Keep more of the network"
    if needed is not None:
        keep += f" (as predicted below, about {percent(needed, 0)} of the FLOPs)"
    done = facts.record.get("distilled")
    if done is None:
        train = "go on with a distillation (interpress distill)"
    else:
        train = f"distil it for longer than the {plural(int(done['steps']), 'step')} that it ran"
    return f"{keep}, calibrate on more examples, or {train}."


def _decisions(facts: Facts, share: float, asked: dict[str, object]) -> Check:
    """Return the check of decisions: the worse end of the interval counts."""
    assert facts.judged is not None
    examples, (low, _) = int(facts.judged["examples"]), facts.judged["interval"]
    own = asked["value"] if asked["budget"] == "agreement" else None
    limit = LIMIT if not isinstance(own, int | float) else 1 - float(own)
    remedy = _larger(facts, _flops_needed(facts, 1 - limit))
    if 1 - share <= limit and (needed := _examples_needed(share, limit)) is not None:
        remedy = (
            f"{percent(1 - share, 2)} is within the limit, but {count(examples)} examples leave "
            f"room for {percent(1 - low, 2)}. Judge it on about {count(needed)} examples, which "
            f"are enough for this rule if they agree as often. Or: {remedy[0].lower()}{remedy[1:]}"
        )
    return Check(
        f"At most {percent(limit, 0 if limit == LIMIT else 2)} of the decisions change, at the "
        "worse end of the 95 % interval.",
        f"{percent(1 - share, 2)} changed; at the worse end {percent(1 - low, 2)}.",
        1 - low <= limit,
        remedy,
    )


def _flops_needed(facts: Facts, share: float) -> float | None:
    """Return the fewest FLOPs of the predicted curve at which the interval holds; None if none."""
    curve = facts.extra.get("curve")
    if not curve or facts.extra.get("thin"):
        return None
    found = predict(facts.judged, curve["points"])
    if found is None or found.low is None:
        return None
    points = zip(curve["points"], found.low, strict=True)
    fitting = [float(point["flops"]) for point, low in points if low >= share]
    return min(fitting, default=None)


def _examples_needed(share: float, limit: float) -> int | None:
    """Return how many examples put the end of the interval within the limit; None if too many."""
    number = 1
    while number <= _MOST_NEEDED:
        if 1 - wilson(share * number, number)[0] <= limit:
            return _rounded_up(number)
        number += max(1, number // 20)
    return None


def _rounded_up(number: int) -> int:
    unit = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


def _not_fitted(facts: Facts) -> Check:
    rule = "It was judged on examples that were not fitted."
    common, judged = facts.in_common or 0, (facts.judged or {}).get("examples") or 0
    if common > FEW_IN_COMMON * judged:
        return Check(
            rule,
            f"No: {common:,} of the {judged:,} evaluation examples are calibration examples, and "
            "most of those are fitted.",
            False,
            "Judge on other data.",
        )
    origin = facts.distilled_from
    is_held_out = not (facts.is_independent or facts.is_fitted)
    if origin is not None and is_held_out and origin["sha256"] != facts.data.get("sha256"):
        return Check(
            rule,
            "Not known: the examples that the distillation held out may be among those that "
            "calibrated the network, because other data were given than to compress.",
            False,
            "Judge it on other data (distil with --evaluation).",
            is_final=True,
        )
    return Check(
        rule,
        "No: there were too few examples to hold any out." if facts.is_fitted else "Yes.",
        not facts.is_fitted,
        "Compress again with more examples, so that some can be held out.",
    )


def _classes(facts: Facts) -> Iterator[Check]:
    """Yield whether some class changed significantly more often than all classes together."""
    assert facts.judged is not None
    rows = facts.judged.get("classes") or []
    if len(rows) < 2 or facts.judged["decisions"] != facts.judged["examples"]:
        return  # decisions of one example depend on each other
    total = sum(row["count"] for row in rows)
    overall = sum(row["count"] * row["agreement"] for row in rows) / max(total, 1)
    suffering = [
        str(row["label"])
        for row in rows
        if _tail(round(row["count"] * row["agreement"]), row["count"], overall)
        < _CHANCE / len(rows)
    ]
    named = ", ".join(suffering[:5]) + (", ..." if len(suffering) > 5 else "")
    yield Check(
        "No class changed significantly more often than the others.",
        f"More often: {plural(len(suffering), 'class', 'classes')} ({named})."
        if suffering
        else f"{plural(len(rows), 'class', 'classes')}, none more often than chance explains.",
        not suffering,
        f"Look at the examples of {'class' if len(suffering) == 1 else 'classes'} {named}, which "
        "changed more often than the others; keep more of the network, or calibrate on more "
        "examples like them.",
    )


def _tail(same: int, number: int, share: float) -> float:
    """Return the probability of at most this many equal decisions, if each is equal by `share`."""
    if share >= 1 or same >= number:
        return 1.0
    if share <= 0:
        return 1.0
    logs = [
        math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1)
        + k * math.log(share) + (number - k) * math.log1p(-share)
        for k in range(same + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(math.exp(value) for value in logs))

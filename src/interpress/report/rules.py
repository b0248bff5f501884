"""Rules of the verdict that do not look at the measured change: data, run time, warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interpress.evaluation.memorized import looks_memorized
from interpress.pipeline.warn import RUINED
from interpress.report.check import LIMIT, Check
from interpress.report.facts import Facts
from interpress.report.numbers import count, difference, percent

_HARDLY_FASTER = 0.95
"""Run time relative to the original's from which the page says how it may become shorter."""
_MEMORIZED = (
    "the original is nearly certain of every example that was held out, as networks are of their "
    "training data, so agreement is too optimistic"
)
_SIGNIFICANT = 1.96
"""Standard deviations that chance exceeds, up or down, in 5 % of the cases."""
_NAMED = 3  # classes in a sentence; the table has all of them
FEW_IN_COMMON = 0.01  # of the evaluation examples: data sets hold that many duplicates by chance


def independence(facts: Facts) -> Check:
    """Return whether the examples that were judged on played no part in making the network."""
    rule = "It was judged on data that played no part in making it."
    measure = (
        "Measure agreement on data that interpress has not seen, with labels if there are some: "
        "compress with --evaluation, so that this page says it; interpress evaluate only prints it."
    )
    if facts.distilled_from is not None:
        measure = measure.replace("compress with", "distil with")
    if facts.judged is None or not facts.is_independent:
        found = "No: the examples also chose between candidates."
        return Check(rule, found, False, measure, is_final=True)
    common, number = facts.in_common, int(facts.judged["examples"])
    if common is None:
        found = "Not known: the examples that made the network were not at hand to compare with."
        own = "Judge it on data of which you know that they played no part."
        return Check(rule, found, False, own, is_final=True)
    if common == 0:
        found = (
            "Yes: no evaluation example was used to calibrate or distil it (equal inputs were "
            "looked for)."
        )
        return Check(rule, found, True)
    return Check(
        rule,
        f"No: {count(common)} of the {count(number)} evaluation examples were used to calibrate "
        "or distil it.",
        False,
        f"Leave these {count(common)} examples out of the evaluation data, and measure again (with "
        "--evaluation).",
        is_final=common <= FEW_IN_COMMON * number,
    )


def accuracy(facts: Facts) -> Iterator[Check]:
    """Yield whether the smaller network is right significantly less often, if there are labels.

    This is McNemar's test: if neither network is better, a decision that is right in one of them
    only is as likely to be lost as to be gained. The 1 is the usual correction for whole numbers.
    """
    judged = facts.judged or {}
    if (
        not (judged.get("turned") and judged["accuracy"])
        or judged["decisions"] != judged["examples"]
    ):
        return  # decisions of one example depend on each other
    (before, after), (lost, gained, _) = judged["accuracy"], judged["turned"]
    named = _lost_most(judged.get("classes") or [])
    yield Check(
        "It is not significantly less accurate than the original (McNemar's test, 5 %).",
        f"{percent(before, 2)} right before, {percent(after, 2)} after: {count(lost)} right "
        f"decisions became wrong, {count(gained)} wrong ones right.",
        lost - gained - 1 <= _SIGNIFICANT * math.sqrt(lost + gained),
        f"Keep more of the network.{f' Accuracy fell most for {named}.' if named else ''}",
    )


def _lost_most(classes: Sequence[Mapping[str, Any]]) -> str:
    """Return the classes whose accuracy fell most, in words."""
    falls = [
        (round(row["accuracy_before"], 3) - round(row["accuracy_after"], 3), row["label"])
        for row in classes
        if row.get("accuracy_before") is not None
    ]
    worst = sorted((fall for fall in falls if fall[0] > 0), reverse=True)[:_NAMED]
    return ", ".join(f"class {label} (by {100 * fall:.1f} points)" for fall, label in worst)


def run_time(facts: Facts) -> Iterator[Check]:
    """Yield whether the smaller network is faster, if that was measured."""
    ratio, quartiles = facts.time_ratio, facts.time_quartiles
    if ratio is None:
        return
    low, high = quartiles or (ratio, ratio)
    is_undecided = quartiles is not None and low <= 1 <= high
    found = f"{percent(ratio, 0)} of the original's run time"
    if quartiles is not None:
        found += f"; half of the measurements lie between {percent(low, 0)} and {percent(high, 0)}"
    remedy = ""
    if ratio >= 1:
        remedy = "" if is_undecided else "It is not faster here. "
        remedy += (
            "Ask for a run time with --latency, or for widths that are multiples of 8 with "
            "--round-to 8 (round_to=8), which suit many devices better."
        )
    where = "" if facts.onnx is None else f" ({facts.onnx_name} in ONNX Runtime)"
    yield Check(
        f"It runs faster than the original{where}.", f"{found}.", ratio < 1 and not is_undecided,
        remedy, is_undecided=is_undecided,
        hint="--round-to 8 may make it faster." if ratio >= _HARDLY_FASTER else "",
    )  # fmt: skip


def weights_given(facts: Facts) -> Iterator[Check]:
    """Yield whether a command was given weights, if that is known."""
    as_built = facts.extra.get("as_built")
    if as_built is None:
        return
    yield Check(
        "The network has weights that were given.",
        "No weights were given: the network is as its function returned it."
        if as_built
        else "Yes.",
        not as_built,
        "Give the trained weights with --weights. If the function loads them itself, ignore this "
        "rule.",
    )


def other_outputs(facts: Facts) -> Iterator[Check]:
    """Yield whether an output that does not decide changed too much."""
    if not facts.others:
        return
    name, change = facts.others[0]
    found = f"{name} changed by " + ("no finite number" if change is None else percent(change))
    several = len(facts.others) > 1
    yield Check(
        f"No other output changed by more than {percent(LIMIT, 0)}.",
        f"{'The worst: ' if several else ''}{found}.",
        change is not None and change <= LIMIT,
        f"Check whether you use the output {name}. If so, keep more of the network, or leave out "
        "the layers that it is computed from (--exclude).",
    )


def surgery(facts: Facts) -> Check:
    """Return the check of the projection identity; a network that fails it is never built."""
    later = [
        *(["the refit"] if facts.record.get("refit_kept") else []),
        *(["the distillation"] if facts.record.get("distilled") else []),
    ]
    after = f" {' and '.join(later).capitalize()} then changed the weights." if later else ""
    limit = facts.record.get("proof_limit")
    allowed = "" if limit is None else f"; at most {limit:.0e} is allowed for rounding"
    return Check(
        "Removing the channels made no mistake: the projection identity holds.",
        f"Yes{difference(facts.record['proof'])}{allowed}.{after}",
        True,
    )


def warnings_of(facts: Facts) -> list[str]:
    """Return the warnings that the network was made with."""
    return [str(warning) for warning in facts.extra.get("warnings") or []]


def no_warnings(facts: Facts) -> Check:
    """Return whether there were warnings, with what to do about each."""
    found = warnings_of(facts)
    judged = facts.record["agreement"] or {}
    if looks_memorized(judged.get("confidence")):
        found.append(_MEMORIZED)
    remedies = dict.fromkeys(_remedy(text) for text in found)
    return Check(
        "There were no warnings.",
        " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in found) or "None.",
        not found,
        " ".join(remedies),
    )


def _remedy(warning: str) -> str:
    """Return what to do about a warning."""
    if warning == _MEMORIZED:
        return (
            "Calibrate and judge on examples that the network was not trained on. If both are such "
            "examples, ignore this rule: a very accurate network is certain of new ones as well."
        )
    if warning.startswith(RUINED):
        return "Ask for a larger network, or leave out the spaces that the warning names."
    if "say too little" in warning:
        return "Give more calibration examples, or ask for a larger network."
    return "Act on the warnings; they are listed with the rules below."

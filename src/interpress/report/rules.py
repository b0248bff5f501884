"""Rules of the verdict that do not look at the measured change: data, run time, warnings."""

from __future__ import annotations

from collections.abc import Iterator

from interpress.evaluation.memorized import looks_memorized
from interpress.report.check import Check
from interpress.report.facts import Facts
from interpress.report.numbers import count, difference, percent

_FEW_IN_COMMON = 0.01  # of the evaluation examples: data sets hold that many duplicates by chance


def independence(facts: Facts) -> Check:
    """Return whether the examples that were judged on played no part in making the network."""
    rule = "It was judged on data that played no part in making it."
    measure = (
        "Measure agreement on data that interpress has not seen, with labels if there are some: "
        "interpress evaluate, or compress with --evaluation."
    )
    if facts.judged is None or not facts.is_independent:
        found = "No: the examples also chose between candidates."
        return Check(rule, found, False, measure, is_final=True)
    common, number = facts.in_common, int(facts.judged["examples"])
    if common is None:
        found = "Evaluation data were given. They were not compared with the calibration data."
        return Check(rule, found, True)
    if common == 0:
        return Check(rule, "Yes: no evaluation example is a calibration example.", True)
    return Check(
        rule,
        f"No: {count(common)} of the {count(number)} evaluation examples are calibration examples "
        "too.",
        False,
        f"Leave the {count(common)} calibration examples out of the evaluation data, and measure "
        "again (interpress evaluate, or compress with --evaluation).",
        is_final=common <= _FEW_IN_COMMON * number,
    )


def run_time(facts: Facts) -> Iterator[Check]:
    """Yield whether the smaller network is faster, if that was measured."""
    if facts.time_ratio is None:
        return
    yield Check(
        "It runs faster than the original.",
        f"{percent(facts.time_ratio, 0)} of the original's run time.",
        facts.time_ratio < 1,
        "It is not faster here. Widths that are multiples of 8 or 16 (--round-to) suit many "
        "devices better, or ask for a run time with --latency.",
    )


def surgery(facts: Facts) -> Check:
    """Return the check of the projection identity; a network that fails it is never built."""
    return Check(
        "The surgery is exact: the projection identity holds.",
        f"Yes{difference(facts.record['proof'])}.",
        True,
    )


def warnings_of(facts: Facts) -> list[str]:
    """Return the warnings that the network was made with."""
    return [str(warning) for warning in facts.extra.get("warnings") or []]


def no_warnings(facts: Facts) -> Check:
    """Return whether there were warnings, with what to do about each."""
    found = warnings_of(facts)
    held_out = facts.record["agreement"] or {}
    if looks_memorized(held_out.get("confidence")):
        found.append(
            "the original is nearly certain of every calibration example, as networks are of "
            "their training data, so agreement is too optimistic"
        )
    return Check(
        "There were no warnings.",
        " ".join(f"{text[:1].upper()}{text[1:]}." for text in found) if found else "None.",
        not found,
        "Act on the warnings: they name the spaces, and what to change.",
    )

"""Rules of the verdict on what the examples can show, whatever changed on them."""

from __future__ import annotations

from collections.abc import Iterator

from interpress.evaluation.tally import wilson
from interpress.report.check import Check
from interpress.report.facts import Facts
from interpress.report.numbers import count, percent

_FEWEST_DISTINCT = 0.9
"""Share of the examples that have to differ from all others. The interval of the agreement takes
every example as new; data sets hold a few copies."""


def distinct_examples(facts: Facts) -> Iterator[Check]:
    """Yield whether the examples differ from each other, if they were compared."""
    if facts.distinct is None:
        return
    distinct, number = facts.distinct
    yield Check(
        f"At least {percent(_FEWEST_DISTINCT, 0)} of the examples are distinct.",
        f"{count(distinct)} of {count(number)} {facts.set_that_counts} examples.",
        distinct >= _FEWEST_DISTINCT * number,
        "Leave out copies of examples; they say nothing new.",
        is_of_data=True,
    )


def informative_decisions(facts: Facts) -> Iterator[Check]:
    """Yield whether the original decides differently from case to case, and better than a guess.

    Two networks that always give the same answer agree, whatever the data.
    """
    assert facts.judged is not None
    rows = facts.judged.get("classes") or []
    if not rows:
        return
    accuracy = facts.judged.get("accuracy")
    if accuracy is None:
        yield Check(
            "The original decides for more than one class.",
            f"{count(len(rows))} {'class' if len(rows) == 1 else 'classes'}.",
            len(rows) > 1,
            "Check the weights of the original, and judge on examples of several classes.",
            is_of_data=True,
        )
        return
    number = sum(row["count"] for row in rows)
    commonest = max(row["count"] for row in rows) / number
    low, _ = wilson(accuracy[0] * facts.judged["examples"], facts.judged["examples"])
    yield Check(
        "The original is right more often than always guessing the commonest class.",
        f"{percent(accuracy[0])} right (at the worse end of the 95 % interval {percent(low)}), "
        f"and the commonest class has {percent(commonest)}.",
        low > commonest,
        "Check the weights of the original, the labels and their order, and judge on examples of "
        "several classes.",
        is_of_data=True,
    )

"""The page of one result: its `plan.json` in, one self-contained HTML document out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interpress.data.calibration_set import CalibrationSet
from interpress.data.example_hashes import hashes_of
from interpress.data.sources import rereadable
from interpress.evaluation.agreement import agreement
from interpress.evaluation.tally import Agreement
from interpress.pipeline.outcome import Outcome
from interpress.report import sections
from interpress.report.answers import answers
from interpress.report.examples import Gallery, changed_decisions
from interpress.report.facts import Facts
from interpress.report.gallery import gallery_section
from interpress.report.heading import describe, headline
from interpress.report.provenance import provenance
from interpress.report.terms import glossary
from interpress.report.tradeoff import prediction_of, tradeoff
from interpress.report.verdict import verdict_of
from interpress.storage.plan_record import evaluation_record, plan_record

_ASSETS = Path(__file__).parents[1] / "assets"


def written_report(
    outcome: Outcome, evaluation: Any = None, examples: bool = False, tokenizer: Any = None
) -> tuple[dict[str, Any], str]:
    """Return the plan of a result with all measurements, and its page."""
    if evaluation is not None:
        evaluation = rereadable(evaluation, outcome.study.original)
    measured = None if evaluation is None else _evaluated(outcome, evaluation)
    judged = None
    if measured is not None:
        options = outcome.options
        data = CalibrationSet(
            evaluation, outcome.study.original, forward=options.forward, mask=options.mask
        )
        calibration = outcome.study.data
        used = None if calibration is None else set(hashes_of(calibration))
        judged = evaluation_record(measured, outcome.notes, used, data)
    record = plan_record(outcome, judged, measure=True)
    found = None
    if examples:
        agreed = outcome.agreement if measured is None else measured
        found = changed_decisions(outcome, agreed, evaluation, tokenizer)
    return record, page_of(record, found)


def _evaluated(outcome: Outcome, evaluation: Any) -> Agreement:
    meaning = outcome.study.meaning
    return agreement(
        outcome.study.original, outcome.network.model, evaluation,
        forward=outcome.options.forward, mask=outcome.options.mask,
        kind=meaning.kind, output=meaning.output, progress=False,
    )  # fmt: skip


def page_of(record: Mapping[str, Any], gallery: Gallery | None = None) -> str:
    """Return the page of a result that was read from a folder, or is about to be written."""
    facts = Facts(record)
    verdict = verdict_of(facts)
    data = _slider_data(facts)
    body = "".join(
        [
            headline(facts),
            answers(facts, verdict),
            sections.costs(facts),
            sections.checks(verdict),
            tradeoff(facts),
            sections.widths(facts),
            sections.judgement(facts),
            gallery_section(gallery),
            sections.frozen(facts),
            sections.thin(facts),
            provenance(facts),
            sections.spaces(facts, has_slider=data is not None),
        ]
    )
    return document(describe(facts), body + glossary(body), data)


def document(title: str, body: str, data: Mapping[str, Any] | None = None) -> str:
    """Return a whole document. `data` is for the slider; the page says everything without it."""
    script = ""
    if data is not None:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
        safe = (
            text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )
        code = (_ASSETS / "report.js").read_text(encoding="utf-8")
        script = (
            f'<script type="application/json" id="curve">{safe}</script><script>{code}</script>'
        )
    parts = {
        "TITLE": title,
        "STYLE": (_ASSETS / "report.css").read_text(encoding="utf-8"),
        "BODY": body,
        "SCRIPT": script,
    }
    template = (_ASSETS / "report.html").read_text(encoding="utf-8")
    before, *rest = template.split("{{")
    pieces = [before]
    for piece in rest:  # filled in one pass, so that a name may contain braces
        key, after = piece.split("}}", 1)
        pieces += [parts[key], after]
    return "".join(pieces)


def _slider_data(facts: Facts) -> dict[str, Any] | None:
    """Return the curve as the slider needs it."""
    curve = facts.extra.get("curve")
    if not curve or facts.extra.get("thin"):
        return None
    found = prediction_of(facts)
    return {
        "at": curve["at"],
        "before": [row["before"] for row in facts.record["plan"]],
        "points": curve["points"],
        "label": None if found is None else found.label,
        "predicted": None if found is None else found.line,
    }

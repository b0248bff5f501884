"""How a result was made, so that it can be made again and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interpress.report.facts import Facts
from interpress.report.markup import definitions, escape, items, section
from interpress.report.numbers import count, difference
from interpress.report.terms import term


def provenance(facts: Facts) -> str:
    """Return hashes, versions, data and options."""
    record, data = facts.record, facts.data
    digests, made = facts.extra.get("digests") or {}, facts.extra.get("made") or {}
    hashed, origin = term("fingerprint"), facts.distilled_from or {}
    versions = [f"{name} {version}" for name, version in record["versions"].items()]
    machine = [made[key] for key in ("Python", "machine") if key in made]
    notes = [escape(note) for note in (facts.judged or {}).get("notes", [])]
    rows = [
        ("made with", _code(facts.extra.get("call"))),
        ("date", escape(made.get("date", ""))),
        ("network", escape(facts.name)),
        ("file of the original's weights, SHA-256", _file(facts.extra.get("weights_file"))),
        (f"weights of the original, {hashed}", _code(digests.get("original"))),
        (f"weights of the smaller network, {hashed}", _code(digests.get("smaller"))),
        (term("calibration"), _calibration(data)),
        (f"calibration data, {hashed}", _code(data.get("sha256"))),
        ("calibration data, short fingerprint", _code(data.get("fingerprint"))),
        (f"evaluation data, {hashed}", _code((record.get("evaluation") or {}).get("sha256"))),
        ("distilled with", _code(origin.get("call"))),
        (f"weights before the distillation, {hashed}", _code(digests.get("start"))),
        (
            "examples of the distillation",
            f"{count(origin['examples'])}, one in five of them held out" if origin else "",
        ),
        (f"data of the distillation, {hashed}", _code(origin.get("sha256"))),
        ("preprocessing", _preprocessing(record.get("preprocessing"))),
        ("method", _method(record["method"])),
        (term("refit"), "kept" if record.get("refit_kept") else "not used"),
        (term("identity"), f"holds{difference(record['proof'])}"),
        (term("product"), _products(record.get("low_rank"))),
        ("notes", items(notes)),
        ("seed", str(record["seed"])),
        ("versions", escape(", ".join(versions))),
        ("Python and machine", escape(", ".join(machine))),
    ]
    return section("made", "How it was made", definitions(rows))


def _products(low_rank: Any) -> str:
    """Return whether two thin layers give what one of their rank does, if layers became two."""
    proof = (low_rank or {}).get("proof")
    return "" if proof is None else f"holds{difference(proof)}"


def _file(found: Sequence[str] | None) -> str:
    """Return the name of a file, and the hash that `sha256sum` prints for it."""
    return "" if not found else f"{escape(found[0])} {_code(found[1])}"


def _code(text: str | None) -> str:
    return f"<code>{escape(text)}</code>" if text else ""


def _calibration(data: Mapping[str, Any]) -> str:
    if not data:
        return ""
    inputs = escape("; ".join(data.get("inputs") or []))
    held = f", {count(data['held_out'])} held out" if data.get("held_out") else ", none held out"
    return f"{count(data['fitted'])} fitted{held}; input {inputs}"


def _preprocessing(found: Any) -> str:
    if not found:
        return ""
    if isinstance(found, Mapping):
        parts = [f"{key} {value}" for key, value in found.items() if value is not None]
        return escape("; ".join(parts))
    return escape(found)


def _method(parts: Mapping[str, Any]) -> str:
    rest = ", ".join(f"{key} {_word(value)}" for key, value in parts.items() if key != "name")
    return escape(f"{parts['name']}: {rest}")


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

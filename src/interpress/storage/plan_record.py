"""What `plan.json` says about a result, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import nn

from interpress._version import __version__
from interpress.data.calibration_set import CalibrationSet
from interpress.data.example_hashes import find_copies, from_text
from interpress.distillation.run import Distilled
from interpress.evaluation.tally import Agreement
from interpress.files.tensor_file import FORMAT_VERSION
from interpress.graph.digest import weights_digest
from interpress.graph.example import Example
from interpress.pipeline.outcome import Outcome
from interpress.storage.architecture import architecture_of, digest_of
from interpress.storage.evidence import evidence
from interpress.storage.example_description import describe
from interpress.storage.fingerprint import fingerprint
from interpress.storage.page_record import page_record, unchanged_tensors
from interpress.storage.ranks import with_ranks
from interpress.storage.sizes import changed_sizes

KIND = "compressed-network"


def plan_record(
    outcome: Outcome, evaluation: dict[str, Any] | None = None, *, measure: bool = False
) -> dict[str, Any]:
    """Return the plan as it is written to `plan.json`.

    `evaluation` is what `evaluation_record` returns. `measure` adds what a page needs
    besides: run time, memory, a hash of the data and the date.
    """
    distilled, low_rank = outcome.network.distillation, outcome.network.low_rank
    return {
        "interpress": KIND,
        "version": FORMAT_VERSION,
        "versions": _versions(),
        "asked": {"budget": outcome.budget.kind, "value": outcome.budget.value, **_judged(outcome)},
        "method": {"name": outcome.method.name, **asdict(outcome.method)},
        "seed": outcome.seed,
        "preprocessing": outcome.options.preprocessing,
        "flops": [outcome.before.flops, outcome.after.flops],
        "parameters": [outcome.before.parameters, outcome.after.parameters],
        "agreement": evidence(
            outcome.agreement, outcome.judged_on.removeprefix("on "), outcome.notes
        ),
        "refit_kept": outcome.network.refit_kept,
        "distilled": None if distilled is None else distilled.record(),
        "proof": outcome.network.proof.difference,
        "proof_limit": outcome.network.proof.tolerance,
        "onnx": None if outcome.onnx is None else asdict(outcome.onnx),
        "plan": [asdict(row) for row in outcome.plan],
        "frozen": {space.name: space.frozen for space in outcome.spaces.frozen},
        "original": {**architecture_of(outcome.original), "weights": digest_of(outcome.original)},
        "low_rank": None if low_rank is None else low_rank.record(),
        "part": None if outcome.part is None else outcome.part.name,
        "sizes": changed_sizes(with_ranks(outcome.original, outcome.ranks), outcome.model),
        "output": fingerprint(outcome.network.model, describe(outcome.spaces.program.example)),
        "evaluation": evaluation,
        "report": page_record(outcome, measure=measure),
    }


def evaluation_record(
    judged: Agreement,
    notes: Sequence[str],
    used: set[bytes] | None,
    evaluation: CalibrationSet,
) -> dict[str, Any]:
    """Return agreement on evaluation data, with a hash of them and the copies among them.

    `used` are hashes of all examples that helped to make the network; None if they are not known.
    """
    copies = None if used is None else find_copies(used, evaluation)
    record = evidence(judged, "evaluation data", notes)
    assert record is not None
    return record | {
        "in_common": None if copies is None else copies.in_common,
        "distinct": None if copies is None else copies.distinct,
        "sha256": evaluation.digest(),
    }


def used_examples(record: Mapping[str, Any]) -> set[bytes] | None:
    """Return hashes of the examples that calibrated and distilled a result; None if not known."""
    data = (record.get("report") or {}).get("data") or {}
    calibrated = from_text(data.get("hashes"))
    origin = (record.get("distilled") or {}).get("origin")
    if origin is None or calibrated is None:
        return calibrated
    distilled = from_text(origin.get("hashes"))
    return None if distilled is None else calibrated | distilled


class Origin(NamedTuple):
    """Where a distillation of a saved result comes from."""

    call: str
    examples: int
    sha256: str
    """Of the data that it trained on and was judged on."""
    hashes: str | None
    """Of these examples and of those of earlier distillations; see `data.example_hashes`."""


def distilled_record(
    record: Mapping[str, Any],
    original: nn.Module,
    distilled: Distilled,
    example: Example,
    origin: Origin,
    evaluation: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the plan of a result with the evidence of a distillation that followed.

    `evaluation` is what `evaluation_record` returns.
    """
    changed = {**record, "evaluation": evaluation, "versions": _versions()}
    if "report" in record:
        earlier = record["report"]["digests"]
        digests = {
            **earlier, "start": earlier["smaller"], "smaller": weights_digest(distilled.model),
        }  # fmt: skip
        changed["report"] = {
            **record["report"],
            "digests": digests,
            "unchanged": unchanged_tensors(original, distilled.model),
        }
    changed["distilled"] = distilled.distillation.record() | {"origin": origin._asdict()}
    if distilled.agreement is not None:
        notes = [*(record["agreement"] or {}).get("notes", []), str(distilled.distillation)]
        changed["agreement"] = evidence(distilled.agreement, "held-out examples", notes)
    changed["output"] = fingerprint(distilled.model, describe(example))
    return changed


def _versions() -> dict[str, str]:
    return {"interpress": __version__, "torch": str(torch.__version__)}


def _judged(outcome: Outcome) -> dict[str, Any]:
    """Return the `kind=` and `output=` that were given; a function cannot be saved."""
    output = outcome.options.output
    saved = "a function, which cannot be saved" if callable(output) else output
    return {"kind": outcome.options.kind, "output": saved}

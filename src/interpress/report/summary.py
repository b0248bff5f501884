"""The summary of a result as text of 80 columns, and the result in one line."""

from __future__ import annotations

from interpress.pipeline.outcome import Outcome
from interpress.spaces.table import frozen_text
from interpress.tables.text_table import paragraph, text_table

_LEGEND = (
    "error: of the activations that consumers read, relative to their size; the largest of the "
    "space. over SVD: that error over the smallest one at the same rank."
)


def summary_of(outcome: Outcome) -> str:
    """Return what was asked, what came out, the evidence, and what stays whole."""
    parts = [_costs(outcome), *map(paragraph, _sentences(outcome))]
    if outcome.plan:
        parts += [_spaces(outcome), paragraph(_LEGEND)]
    if outcome.ranks:
        parts.append(_ranks(outcome))
    if outcome.spaces.frozen:
        parts += ["", frozen_text(outcome.spaces.frozen_shares(), outcome.spaces.cost)]
    return "\n".join(parts)


def one_line(outcome: Outcome) -> str:
    """Return what was asked and what came out, without tables."""
    left = f"{outcome.flops:.1%} of the FLOPs and {outcome.params:.1%} of the parameters left"
    if outcome.measured_latency is not None:
        left += f", {outcome.measured_latency:.2f} of the run time"
    judged = (
        "not judged" if outcome.agreement is None else f"{outcome.judged_on} {outcome.agreement}"
    )
    name = type(outcome.original).__name__
    return f"Result({name}, {outcome.method}, asked for {outcome.budget}: {left}; {judged})"


def _costs(outcome: Outcome) -> str:
    rows = []
    where = "" if outcome.part is None else f", in the part {outcome.part.name}"
    for label, unit in (("FLOPs per example", "flops"), ("parameters", "parameters")):
        before, after = getattr(outcome.before, unit), getattr(outcome.after, unit)
        rows.append((label, f"{before:,}", f"{after:,}", f"{after / before:.1%}"))
    if (latency := outcome.measured_latency) is not None:
        rows.append(("measured run time, relative", "1.00", f"{latency:.2f}", f"{latency:.1%}"))
    title = f"{outcome.method}, asked for {outcome.budget}{where}"
    return text_table(("", "original", "smaller", "left"), rows, title=title, full_width=True)


def _sentences(outcome: Outcome) -> list[str]:
    """Return the evidence, and what is worth knowing about how the network was made."""
    agreement, notes = outcome.agreement, list(outcome.notes)
    if agreement is None:
        return ["not judged: there are no examples to judge on", *notes]
    return [f"{outcome.judged_on}: {agreement}", *agreement.notes, *notes]


def _spaces(outcome: Outcome) -> str:
    rows = []
    for row in outcome.plan:
        changed = row.after < row.before
        rows.append(
            (
                row.name,
                str(row.before),
                str(row.after),
                f"{row.after / row.before:.0%}",
                f"{row.error:.1%}" if changed else "",
                f"{row.ratio:.2f}" if changed and row.ratio is not None else "",
            )
        )
    columns = ("space", "before", "after", "kept", "error", "over SVD")
    return text_table(columns, rows, full_width=True)


def _ranks(outcome: Outcome) -> str:
    """Return the layers that became two; their FLOPs are compared with one layer's."""
    assert outcome.network.low_rank is not None
    rows = [
        (pair.name, str(pair.inputs), str(pair.outputs), str(pair.rank), f"{pair.share:.0%}")
        for pair in outcome.network.low_rank.pairs
    ]
    columns = ("layer that became two", "inputs", "outputs", "rank", "FLOPs")
    return text_table(columns, rows, full_width=True)

"""The block at the top of the page: six questions and their answers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interpress.report.facts import Facts
from interpress.report.markup import definitions, escape, items, paragraph
from interpress.report.numbers import count, percent, plural, short, size
from interpress.report.terms import term
from interpress.report.verdict import Verdict

_UNCHANGED = 0.99  # of the memory, from which it is said to stay
_CLEARLY = 0.01  # below the budget, from which the page says why less is left
_MOST_SHAPES = 4  # of inputs and outputs, together, that the first answer names
_LISTED = 3  # reasons that a sentence names; the section below has all of them
_MARKS = {"ship": "✓", "confirm": "✓", "look": "!", "stop": "✕"}


def answers(facts: Facts, verdict: Verdict) -> str:
    """Return the verdict and what a reader wants to know first."""
    rows = [
        ("What was compressed?", _what(facts)),
        ("To what?", _to_what(facts)),
        ("How was it judged?", _how(facts)),
        ("What changed?", _changed(facts)),
        ("What was left alone, and why?", f"{_left(facts)} {_weights(facts)}"),
        ("What is still to do?", items([escape(text) for text in verdict.to_do])),
    ]
    headline = f'<span aria-hidden="true">{_MARKS[verdict.level]}</span> {escape(verdict.headline)}'
    rules = paragraph('The <a href="#checks">rules behind this line</a> are below.', "soft")
    return (
        f'<section id="verdict" class="{verdict.level}" aria-label="Verdict">'
        f"<h2>{headline}</h2>{rules}{definitions(rows)}</section>"
    )


def _what(facts: Facts) -> str:
    parts = [f"<b>{escape(facts.name)}</b>"]
    parameters, flops = facts.record["parameters"][0], facts.record["flops"][0]
    parts.append(
        f"a network with {short(parameters).strip()} {term('parameters')} and "
        f"{short(flops).strip()} {term('flops')} per example"
    )
    sentence = ", ".join(parts) + "." + _interface(facts)
    digest = (facts.extra.get("digests") or {}).get("original")
    if digest:
        sentence += f" Weights: {term('fingerprint')} <code>{digest[:12]}…</code>"
    return sentence


def _interface(facts: Facts) -> str:
    """Return what the network takes and gives per example, in shapes; empty if it is not known."""
    output = facts.record.get("output") or {}
    inputs = _shapes_in(output.get("example"))
    outputs = [sums[0] for sums in output.get("sums") or []]
    if not inputs or not outputs or len(inputs) + len(outputs) > _MOST_SHAPES:
        return ""
    taken, given = (
        " and ".join(" x ".join(map(str, shape[1:])) or "1" for shape in shapes)
        for shapes in (inputs, outputs)
    )
    return f" An input of {taken} numbers gives an output of {given} numbers."


def _shapes_in(described: Any) -> list[list[int]]:
    """Return the shapes of all tensors in the description of an example."""
    if isinstance(described, dict) and "shape" in described:
        return [described["shape"]]
    if not isinstance(described, dict | list):
        return []
    parts = described.values() if isinstance(described, dict) else described
    return [shape for part in parts for shape in _shapes_in(part)]


def _to_what(facts: Facts) -> str:
    (before, after), method = facts.channels, facts.record["method"]
    text = (
        f"A network of the same kind with <b>{percent(facts.left('flops'))} of the FLOPs</b> and "
        f"{percent(facts.left('parameters'))} of the parameters. It was asked for as "
        f"<code>{escape(facts.asked)}</code> with the method {escape(facts.method)}"
        f"{_steps(facts)}. {count(after)} of {count(before)} channels{_heads(facts)} remain in the "
        f"{term('space', plural(len(facts.record['plan']), 'space') + ' that can shrink')}. "
        f"The selection <code>{escape(method['selection'])}</code> chose which ones"
    )
    if method["correct"]:
        text += "; the layers that read removed channels were changed to make up for them"
    if facts.record.get("refit_kept"):
        text += f", and layers were solved again where that helped ({term('refit')})"
    text += "."
    if thin := facts.extra.get("thin"):
        text += f" {plural(len(thin), 'layer')} became two thin ones ({term('low-rank')})."
    if (distilled := facts.record.get("distilled")) and distilled["kept"]:
        text += (
            f" Then it was trained towards the original's outputs for {count(distilled['steps'])} "
            "steps, without labels."
        )
    return text


def _steps(facts: Facts) -> str:
    """Return why less is left than was asked for, if that is clearly so."""
    asked = facts.record["asked"]
    key = {"flops": "flops", "params": "parameters"}.get(asked["budget"])
    if key is None or facts.left(key) > float(asked["value"]) - _CLEARLY:
        return ""
    return "; the allocation found no larger network within that budget"


def _heads(facts: Facts) -> str:
    """Return how many attention heads are left, if they can be dropped."""
    if facts.heads is None:
        return ""
    before, after = facts.heads
    return f" and {count(after)} of {count(before)} attention heads"


def _how(facts: Facts) -> str:
    judged = facts.judged
    if judged is None:
        return "It was not judged: there were no data to compare both networks on."
    noun = plural(judged["examples"], "example")
    if facts.is_independent:
        which = f"{noun} of {term('evaluation')}"
        if facts.in_common == 0:
            which += ", none of which was used to make the smaller network"
        elif facts.in_common is not None:
            which += f", of which <b>{count(facts.in_common)}</b> are calibration examples too"
    elif facts.is_fitted:
        which = f"the {noun} that it was fitted to, which are too few to hold any out"
    else:
        distilled = facts.distilled_from is not None
        source = "the data of the distillation" if distilled else "the calibration data"
        which = f"{term('held-out', f'{noun} held out')} from {source}"
    text = f"Both networks ran on {which}. "
    if judged["agreement"] is None:
        compared = f"Their outputs{_of(facts)} were compared as numbers"
        return text + f"{compared} ({term('output-error')})."
    text += f"Their decisions{_of(facts)} were compared ({term('agreement')})"
    if judged["decisions"] != judged["examples"]:
        text += f": {count(judged['decisions'])} of them"
    if facts.perplexity is not None:
        text += f", and how well both predict the text ({term('perplexity')})"
    if judged["accuracy"] is None:
        return text + "; no labels were needed."
    return (
        text
        + ", and both were compared with labels. No labels were used to make the smaller network."
    )


def _changed(facts: Facts) -> str:
    judged = facts.judged
    if judged is None:
        return "It is not known."
    if judged["agreement"] is None:
        error = judged["output_error"]
        differ = "by no finite number" if error is None else f"by <b>{percent(error)}</b>"
        text = f"The outputs{_of(facts)} differ {differ} of their standard deviation."
        return text + _others(facts) + _cheaper(facts)
    (low, high), share = judged["interval"], judged["agreement"]
    if judged["decisions"] == judged["examples"]:
        changed = round((1 - share) * judged["decisions"])
        of_all = plural(judged["decisions"], "decision")
        text = f"<b>{count(changed)} of {of_all}{_of(facts)} changed</b>: "
    else:
        text = f"<b>{percent(1 - share, 2)} of the decisions{_of(facts)} changed</b>: "
    text += (
        f"{term('agreement')} {percent(share, 2)} ({term('interval')}: {percent(low, 2)} to "
        f"{percent(high, 2)})."
    )
    if facts.perplexity is not None:
        before, after = facts.perplexity
        text += (
            " A decision is the likeliest next token, which changes easily where another one is "
            "about as likely; the verdict goes by the perplexity."
        )
        text += (
            f" {term('perplexity', 'Perplexity')}: {before:.4g} before, <b>{after:.4g}</b> after, "
            f"{after / before:.3f} times."
        )
    if judged["accuracy"] is not None:
        before, after = judged["accuracy"]
        text += f" Accuracy: {percent(before, 2)} before, <b>{percent(after, 2)}</b> after"
        if turned := judged.get("turned"):
            lost, gained, others = map(count, turned)
            text += (
                f": {lost} right decisions became wrong, {gained} wrong ones became right, and "
                f"{others} stayed wrong with another class"
            )
        text += "."
    elif facts.perplexity is None and share < 1:
        text += (
            " Without labels, accuracy is not known; on these examples it can have fallen by at "
            f"most {100 * (1 - share):.2f} points."
        )
    return text + _others(facts) + _cheaper(facts)


def _of(facts: Facts) -> str:
    """Return which output was judged, if there are several."""
    return f" in the output <code>{escape(facts.output)}</code>" if facts.output else ""


def _others(facts: Facts) -> str:
    """Return which other output changed most."""
    if not facts.others:
        return ""
    name, change = facts.others[0]
    amount = "by no finite number" if change is None else f"by <b>{percent(change)}</b>"
    if len(facts.others) == 1:
        return f" The other output, {escape(name)}, changed {amount}."
    return f" Of the {len(facts.others)} other outputs, {escape(name)} changed most: {amount}."


def _cheaper(facts: Facts) -> str:
    parts = []
    if facts.time_ratio is not None:
        where = "" if facts.onnx is None else f" of {escape(facts.onnx_name)} in ONNX Runtime"
        left = percent(facts.time_ratio, 0)
        parts.append(f"the {term('run-time')}{where} is {left} of the original's")
    if facts.memory is not None:
        before, after = facts.memory
        if after >= _UNCHANGED * before:
            parts.append(f"the {term('memory')} hardly changes ({size(before)}, {size(after)})")
        else:
            parts.append(f"the {term('memory')} falls from {size(before)} to {size(after)}")
    when = "here" if facts.distilled_from is None else "here before the distillation"
    return f" Measured {when}, {' and '.join(parts)}." if parts else ""


def _weights(facts: Facts) -> str:
    """Return which weights are as they were: a width that stays does not mean that they do."""
    if (found := facts.extra.get("unchanged")) is None:
        return ""
    names = [str(name) for name in found["names"]]
    done = facts.record.get("distilled")
    trained = ", by the distillation too" if done and done["kept"] else ""
    return (
        f"This is about widths. Of all {count(found['of'])} tensors of weights, "
        f"{count(len(names))} are exactly as they were"
        f"{f' ({_named(names)})' if names else ''}; the others lost channels or got new "
        f"values{trained}."
    )


def _left(facts: Facts) -> str:
    parts = []
    share, groups = facts.frozen_share, facts.frozen
    if share is not None and share > 0:
        listed = "; ".join(
            f"{escape(group['family'])} ({percent(group['flops'])})" for group in groups[:_LISTED]
        )
        more = f"; and {plural(len(groups) - _LISTED, 'more reason')}"
        parts.append(
            f"<b>{percent(share)} of the FLOPs</b> cannot shrink ({term('frozen')}): {listed}"
            f"{more if len(groups) > _LISTED else ''}."
        )
    elif share is not None and facts.only_outputs:
        parts.append(
            f"The outputs of the model have to keep their width ({_named(facts.only_outputs)})."
        )
    elif groups:
        if share is not None:
            parts.append("Every layer can lose inputs or outputs.")
        number = sum(len(group["spaces"]) for group in groups)
        noun = f"{plural(number, 'space')} {'is' if number == 1 else 'are'}"
        listed = "; ".join(escape(group["family"]) for group in groups[:_LISTED])
        parts.append(f"{noun} {term('frozen')}: {listed}.")
    elif share is not None:
        parts.append("Nothing had to stay whole: every layer can lose inputs or outputs.")
    if facts.spared:
        parts.append(
            f"{plural(len(facts.spared), 'space')} could shrink and stayed whole, because channels "
            f"elsewhere cost less to remove: {_named(facts.spared)}."
        )
    if facts.untrusted:
        reason = next(iter(facts.untrusted.values()))
        parts.append(
            f"{plural(len(facts.untrusted), 'space')} could shrink and stayed whole, because the "
            f"examples say too little ({escape(reason)}): {_named(list(facts.untrusted))}."
        )
    if groups or facts.whole:
        parts.append('<a href="#frozen">All reasons</a>.')
    return " ".join(parts)


def _named(spaces: Sequence[str]) -> str:
    """Return the first names of some spaces, and how many more there are."""
    more = f" and {len(spaces) - _LISTED} more" if len(spaces) > _LISTED else ""
    return ", ".join(map(escape, spaces[:_LISTED])) + more

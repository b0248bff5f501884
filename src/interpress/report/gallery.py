"""The section of the page that shows examples; only if the user asked for them."""

from __future__ import annotations

from interpress.report.examples import MOST, Changed, Decision, Gallery
from interpress.report.markup import attribute, escape, paragraph, section
from interpress.report.numbers import percent, plural

_TITLE = "Decisions that changed"


def gallery_section(gallery: Gallery | None) -> str:
    """Return the examples whose decision changed most; empty if none were asked for."""
    if gallery is None:
        return ""
    where = escape(gallery.where)
    if not gallery.shown:
        return section("examples", _TITLE, paragraph(f"No decision changed on {where}."))
    text = f"{plural(gallery.flipped, 'decision')} changed on {where}."
    if gallery.shown[0].share is not None:
        text += " These are the examples in which most decisions changed."
    elif gallery.flipped > MOST:
        text += f" These are the {MOST} where both networks were most certain."
    note = paragraph(text)
    privacy = paragraph(
        "These are examples of the data that the networks were judged on. Share this page only "
        "with those who may see them.",
        "soft",
    )
    if gallery.is_text:
        return section("examples", _TITLE, note, privacy, _texts(gallery))
    cards = "".join(map(_card, gallery.shown))
    return section("examples", _TITLE, note, privacy, f'<ul class="gallery">{cards}</ul>')


def _card(changed: Changed) -> str:
    picture = ""
    if changed.share is not None:
        words = f"{percent(changed.share)} of its decisions changed"
        lines = f"<p>{words}</p>"
    else:
        words = f"{changed.before.name} before, {changed.after.name} after"
        lines = (
            f'<p><span class="soft">before</span> {_decision(changed.before)}</p>'
            f'<p><span class="soft">after</span> {_decision(changed.after)}</p>'
        )
    if changed.truth is not None:
        lines += f'<p><span class="soft">label</span> {escape(changed.truth)}</p>'
    if changed.picture is not None:
        alt = attribute(f"example {changed.index}: {words}")
        picture = f'<img src="{attribute(changed.picture)}" alt="{alt}">'
    return f'<li>{picture}{lines}<p class="soft">example {changed.index}</p></li>'


def _decision(decision: Decision) -> str:
    name = f"<b>{escape(decision.name)}</b>"
    return name if decision.probability is None else f"{name} ({percent(decision.probability, 0)})"


def _texts(gallery: Gallery) -> str:
    rows = []
    for changed in gallery.shown:
        truth = ""
        if changed.truth is not None:
            truth = f'<p><span class="soft">in the text</span> <b>{_shown(changed.truth)}</b></p>'
        rows.append(
            f"<li><blockquote>… {escape(changed.context or '')}<mark>?</mark></blockquote>"
            f'<div class="tokens"><p><span class="soft">before</span> {_token(changed.before)}</p>'
            f'<p><span class="soft">after</span> {_token(changed.after)}</p>{truth}</div></li>'
        )
    return f'<ol class="texts">{"".join(rows)}</ol>'


def _token(decision: Decision) -> str:
    return f"<b>{_shown(decision.name)}</b> ({percent(decision.probability, 0)})"


def _shown(token: str) -> str:
    """Return a token with its spaces visible."""
    return escape(token.replace("\n", "⏎").replace(" ", "␣")) or "␣"

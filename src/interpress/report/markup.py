"""Small pieces of HTML. Text that comes from elsewhere goes through `escape`."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

_TAG = re.compile("<[^>]*>")


def escape(text: object) -> str:
    """Return text as it can stand between tags."""
    return html.escape(str(text), quote=False)


def attribute(text: object) -> str:
    """Return text as it can stand inside double quotes."""
    return html.escape(str(text), quote=True)


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of HTML."""
    return f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>"


def section(key: str, title: str, *parts: str) -> str:
    """Return a section with a heading; empty if it has no content."""
    content = "".join(parts)
    if not content:
        return ""
    heading = f'<h2 id="h-{key}">{title}</h2>'
    return f'<section id="{key}" aria-labelledby="h-{key}">{heading}{content}</section>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "") -> str:
    """Return a table of HTML cells; the first cell of a row is its header.

    On a phone, the rows of the kinds "text" and "results" become blocks, with the names of the
    columns in front of the cells.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    names = [attribute(_TAG.sub("", name)) for name in head[1:]]
    body = ""
    for first, *rest in rows:
        cells = "".join(
            f'<td data-label="{name}">{cell}</td>' for name, cell in zip(names, rest, strict=True)
        )
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    label = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll"><table{label}><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def definitions(rows: Sequence[tuple[str, str]]) -> str:
    """Return pairs of a term and its value; those without a value are left out."""
    body = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in rows if value)
    return f"<dl>{body}</dl>"


def items(entries: Sequence[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{entry}</li>" for entry in entries) + "</ul>" if entries else ""

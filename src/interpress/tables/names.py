"""Shorten the names of layers in the middle, so that they still tell the layers apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

_CUT = "…"


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Return the names, each with at most `width` characters where that keeps them distinct.

    Parts of a dotted name are left out: `features…conv1`, `model…layers.3…query`. The last part
    and those with numbers are kept first. A name that no cut tells from all others stays whole.
    """
    candidates = {name: list(_cuts(name, width)) for name in names}
    short = {name: cuts[0] for name, cuts in candidates.items()}
    for step in range(1, max((len(cuts) for cuts in candidates.values()), default=0)):
        counts = Counter(short.values())
        for name, cuts in candidates.items():
            if counts[short[name]] > 1 and step < len(cuts):
                short[name] = cuts[step]
    counts = Counter(short.values())
    return [name if counts[short[name]] > 1 else short[name] for name in names]


def _cuts(name: str, width: int) -> Iterator[str]:
    """Yield ways to shorten a name, the best first."""
    if len(name) <= width:
        yield name
        return
    parts = name.split(".")
    last = len(parts) - 1
    numbered = [i for i in range(last, -1, -1) if any(map(str.isdigit, parts[i]))]
    following = [*range(last, -1, -1)]
    for order in ([last, *numbered, 0, *following], [last, *numbered, *following]):
        cut = _with_parts(parts, order, width)
        if cut is not None:
            yield cut
    kept = width - len(_CUT)
    for front in (kept // 3, kept // 2, 0):
        yield name[:front] + _CUT + name[len(name) - (kept - front) :]


def _with_parts(parts: Sequence[str], order: Sequence[int], width: int) -> str | None:
    """Return a name with as many of its parts as fit, taken in this order; None if none fits."""
    kept: set[int] = set()
    best = None
    for index in order:
        if kept.isdisjoint(order[:1]) and index != order[0]:
            return None
        cut = ""
        for i, part in enumerate(parts):
            if i in kept or i == index:
                cut += ("." if i and not cut.endswith(_CUT) else "") + part
            elif not cut.endswith(_CUT):
                cut += _CUT
        if len(cut) <= width:
            kept, best = kept | {index}, cut
    return best

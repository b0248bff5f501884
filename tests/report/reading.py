"""Read a page as a person does: the words of its sections."""

from __future__ import annotations

from html.parser import HTMLParser


class _Reader(HTMLParser):
    """Collects text, by the id of the section that it stands in."""

    def __init__(self) -> None:
        super().__init__()
        self.text: dict[str, list[str]] = {"": []}
        self._section, self._silent = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attrs).get("id") or ""
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self._section = ""
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text.setdefault(self._section, []).append(data)


def sections_of(page: str) -> dict[str, str]:
    """Return the words of every section, by its id; those outside have the id ""."""
    reader = _Reader()
    reader.feed(page)
    return {key: " ".join(" ".join(parts).split()) for key, parts in reader.text.items()}

"""The page in Chromium: on a phone, in dark mode, on paper, and without JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interpress.report.compare import Entry, comparison_page
from interpress.report.facts import Facts
from interpress.storage.result_folder import read_plan

PICTURES = Path(__file__).parents[2] / "build" / "report"


@pytest.fixture(scope="module")
def comparison(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    facts = Facts(read_plan(folder))
    path.write_text(
        comparison_page([Entry("one", facts), Entry("another-with-a-long-name", facts)])
    )
    return path


@pytest.mark.parametrize("which", ["page", "comparison"])
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("light", 1000, "light"), ("dark", 1000, "dark"), ("phone", 390, "light")],
)
def test_it_renders_in_silence(
    browser: Any, request: pytest.FixtureRequest, which: str, name: str, width: int, scheme: str
) -> None:
    page: Path = request.getfixturevalue(which)
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url) if "file:" not in request.url
           and "data:" not in request.url else None)  # fmt: skip
    tab.goto(page.as_uri())
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=PICTURES / f"{which}-{name}.png", full_page=True)
    assert said == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    assert tab.evaluate(f"{cut}.length") == 0  # no table has to be moved sideways either
    assert tab.locator("svg.plot").count() >= 1
    tab.close()


COLOURS = "[document.body, document.querySelector('#costs')].map(e => getComputedStyle(e))"


def test_dark_mode_has_other_colours_and_enough_contrast(browser: Any, page: Path) -> None:
    found = {}
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto(page.as_uri())
        found[scheme] = tab.evaluate(f"{COLOURS}.map((s, i) => i ? s.color : s.backgroundColor)")
        for selector in ("p.soft", "dt", "a.term", "#verdict h2", ".mark"):
            ink = tab.evaluate(f"getComputedStyle(document.querySelector('{selector}')).color")
            assert contrast(ink, found[scheme][0]) >= 4.5, (scheme, selector)
        tab.close()
    assert found["light"][0] == "rgb(255, 255, 255)"
    assert found["dark"][0] != found["light"][0]
    assert found["dark"][1] != found["light"][1]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(p) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_paper_hides_nothing_but_the_slider(browser: Any, page: Path) -> None:
    tab = browser.new_page(viewport={"width": 800, "height": 1000})
    tab.goto(page.as_uri())
    tab.evaluate("document.querySelectorAll('.slider, .at-slider').forEach(e => e.remove())")
    screen = tab.inner_text("main")
    tab.emulate_media(media="print")
    assert tab.inner_text("main") == screen
    assert tab.evaluate("document.documentElement.scrollWidth") <= 800
    assert tab.pdf(format="A4").startswith(b"%PDF")
    tab.close()


def test_without_javascript_everything_but_the_slider_is_there(browser: Any, page: Path) -> None:
    words = []
    for enabled in (True, False):
        context = browser.new_context(java_script_enabled=enabled)
        tab = context.new_page()
        tab.goto(page.as_uri())
        words.append(tab.locator("main").inner_text())
        assert tab.locator(".slider").is_visible() == enabled
        context.close()
    for heading in ("Ship it", "Before and after", "The trade-off", "Widths", "Glossary"):
        assert all(heading in text for text in words)
    parts = words[1].split("All spaces that can shrink")
    assert words[0].startswith(parts[0])


def test_the_slider_works_with_the_keyboard(browser: Any, page: Path) -> None:
    tab = browser.new_page()
    tab.goto(page.as_uri())

    def shown() -> tuple[str, list[str]]:
        widths = tab.locator("table.spaces tbody td.width").all_inner_texts()
        return tab.locator("#budget-value").inner_text(), widths

    before = shown()
    tab.locator("#budget").focus()
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    smaller = shown()
    assert float(smaller[0].split()[0]) < float(before[0].split()[0])
    assert sum(map(int, smaller[1])) < sum(map(int, before[1]))
    tab.keyboard.press("End")
    assert shown() == ("100.0\u00a0%", ["32", "64", "64"])
    assert "predicted agreement 100.0\u00a0%" in tab.locator("#predicted").inner_text()
    tab.close()


def test_the_gallery_is_seen_only_with_examples(browser: Any, page: Path, plain_page: Path) -> None:
    for path, expected in ((page, True), (plain_page, False)):
        tab = browser.new_page()
        tab.goto(path.as_uri())
        pictures = tab.locator("#examples img")
        assert (pictures.count() > 0) == expected
        assert all(pictures.nth(i).get_attribute("alt") for i in range(pictures.count()))
        tab.close()


def test_terms_lead_to_the_glossary_on_touch(browser: Any, page: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.locator("#verdict a.term", has_text="FLOPs").first.tap()
    top = "document.getElementById('term-flops').getBoundingClientRect().top"
    tab.wait_for_function(f"{top} >= 0 && {top} < 800")  # it scrolls smoothly
    assert tab.url.endswith("#term-flops")
    context.close()

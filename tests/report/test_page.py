"""The page: complete, self-contained, and working in a browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import interpress
from interpress import Result
from interpress.report.content import content_of
from interpress.report.page import html_tables, page_of, report_page

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PICTURES = Path(__file__).parents[2] / "build" / "report"


def test_it_fetches_nothing_and_escapes_names(page: Path) -> None:
    text = page.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    model = nn.Sequential()
    model.add_module("</script><b>", nn.Linear(6, 8))
    model.add_module("relu", nn.ReLU())
    model.add_module("out", nn.Linear(8, 3))
    result = interpress.compress(model, torch.randn(60, 6), width=0.5)
    assert "</script><b>" not in report_page(result)
    assert "</script><b>" not in html_tables(result)


def test_an_existing_page_is_not_replaced_unasked(result: Result, page: Path) -> None:
    with pytest.raises(interpress.StorageError, match="overwrite=True"):
        result.report(page)
    with pytest.raises(interpress.StorageError, match="cannot write"):
        result.report(page.parent / "nowhere" / "page.html")


def test_the_data_are_in_the_page_as_json(result: Result) -> None:
    content = content_of(result)
    text = page_of(content)
    line = next(line for line in text.splitlines() if '"asked"' in line)
    found = json.loads(line[line.index("{") : line.rindex("}") + 1])
    assert found == json.loads(json.dumps(content))
    assert "<title>" in text
    assert "{{" not in text


def test_tables_for_notebooks(result: Result) -> None:
    html = html_tables(result)
    assert html.count("<table>") == 2
    assert all(row.name in html for row in result.plan)
    assert f"on held-out examples: {result.agreement}" in html
    assert "<b>preserve, asked for flops=0.3</b>" in html


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("light", 1000, "light"), ("dark", 1000, "dark"), ("phone", 390, "light")],
)
def test_it_renders_in_silence(
    browser: Any, page: Path, name: str, width: int, scheme: str
) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url) if "file:" not in request.url
           and "data:" not in request.url else None)  # fmt: skip
    tab.goto(page.as_uri())
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=PICTURES / f"{name}.png", full_page=True)
    assert said == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("#spaces tbody tr").count() == 3
    assert tab.locator("svg polyline").count() == 1
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    tab.close()


def test_the_slider_works_with_the_keyboard(browser: Any, page: Path) -> None:
    tab = browser.new_page()
    tab.goto(page.as_uri())

    def shown() -> tuple[str, list[str]]:
        widths = tab.locator("#spaces tbody tr td:nth-child(3)").all_inner_texts()
        return tab.locator("#budget-value").inner_text(), widths

    before = shown()
    tab.locator("#budget").focus()
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    smaller = shown()
    assert float(smaller[0].split()[0]) < float(before[0].split()[0])
    assert sum(map(int, smaller[1])) < sum(map(int, before[1]))
    tab.keyboard.press("End")
    assert shown() == ("100.0 %", ["32", "64", "64"])
    assert "predicted agreement 100.00 %" in tab.locator("#predicted").inner_text()
    tab.close()

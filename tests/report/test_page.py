"""The page: complete, self-contained, and working in a browser."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import interpress
from interpress import demo
from interpress.report import content_of, report_page

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PICTURES = Path(__file__).parents[2] / "build" / "report"


@pytest.fixture(scope="module")
def result() -> interpress.Result:
    return interpress.compress(demo.network(), demo.load_digits().calibration, flops=0.3)


@pytest.fixture(scope="module")
def page(result: interpress.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    result.report(path, evaluation=demo.load_digits().test)
    return path


def test_it_holds_what_was_asked_and_what_came_out(result: interpress.Result) -> None:
    content = content_of(result, demo.load_digits().test)
    found = interpress.agreement(result.known.model, result.model, demo.load_digits().test)
    assert content["asked"] == "flops=0.3"
    assert content["agreement"]["share"] == found.agreement
    assert content["agreement"]["interval"] == found.interval
    assert [row["after"] for row in content["spaces"]] == list(result.widths.values())
    assert all(row["ratio"] >= 0.999 for row in content["spaces"])
    assert [row["name"] for row in content["frozen"]] == ["classifier"]
    assert content["made"]["seed"] == "0"
    assert re.search(r"fingerprint [0-9a-f]{16}", content["made"]["calibration"])
    assert len(content["flips"]) == len(found.flips)
    assert all(flip["picture"].startswith("data:image/png;base64,") for flip in content["flips"])


def test_the_curve_is_nested_and_passes_through_the_result(result: interpress.Result) -> None:
    curve = content_of(result)["curve"]
    points = curve["points"]
    assert points[0]["flops"] == 1.0
    assert points[0]["agreement"] == 1.0
    assert points[0]["widths"] == [32, 64, 64]
    for wider, narrower in itertools.pairwise(points):
        pairs = zip(narrower["widths"], wider["widths"], strict=True)
        assert all(a <= b for a, b in pairs)
        assert narrower["flops"] < wider["flops"]
        assert narrower["agreement"] <= wider["agreement"] + 1e-9
    assert abs(points[curve["at"]]["flops"] - result.flops) < 0.05


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


def test_a_regression_and_a_network_of_text_have_pages_too() -> None:
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    result = interpress.compress(model, torch.randn(200, 6), flops=0.5)
    content = content_of(result)
    assert content["agreement"]["share"] is None
    assert content["agreement"]["output_error"] > 0
    assert content["curve"]["points"][0]["agreement"] is None
    assert json.dumps(content)


def test_notebooks_get_tables_and_a_figure(result: interpress.Result) -> None:
    html = result._repr_html_()
    assert html.count("<table>") == 2
    assert "features.3" in html
    figure = result.plot()
    assert len(figure.data) == 2
    assert figure.data[1].x[0] == pytest.approx(100 * result.flops)


def test_an_existing_page_is_not_replaced_unasked(result: interpress.Result, page: Path) -> None:
    with pytest.raises(interpress.StorageError, match="overwrite=True"):
        result.report(page)
    with pytest.raises(interpress.StorageError, match="cannot write"):
        result.report(page.parent / "nowhere" / "page.html")


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

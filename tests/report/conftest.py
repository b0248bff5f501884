"""A result of the network that comes with the package, its page, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interpress import Analysis, Result, demo

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.fixture(scope="package")
def result(demo_analysis: Analysis) -> Result:
    return demo_analysis.compress(flops=0.3)


@pytest.fixture(scope="package")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose page is judged on the test images, and shows some of them."""
    folder = tmp_path_factory.mktemp("results") / "third"
    result.save(folder, report=True, evaluation=demo.load_digits().test, examples=True)
    return folder


@pytest.fixture(scope="package")
def page(folder: Path) -> Path:
    return folder / "report.html"


@pytest.fixture(scope="package")
def plain_page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page that is written if nothing is asked for."""
    path = tmp_path_factory.mktemp("plain") / "report.html"
    result.report(path)
    return path


@pytest.fixture(scope="package")
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

"""A result of the network that comes with the package, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpress import Analysis, Result, demo


@pytest.fixture(scope="package")
def result(demo_analysis: Analysis) -> Result:
    return demo_analysis.compress(flops=0.3)


@pytest.fixture(scope="package")
def page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    result.report(path, evaluation=demo.load_digits().test)
    return path

"""What a notebook shows."""

from __future__ import annotations

import torch
from torch import nn

import interpress
from interpress import Result
from interpress.report.notebook import html_tables


def test_tables_for_notebooks(result: Result) -> None:
    html = html_tables(result)
    assert html.count("<table>") == 2
    assert all(row.name in html for row in result.plan)
    assert f"on held-out examples: {result.agreement}" in html
    assert "<b>preserve, asked for flops=0.3</b>" in html


def test_names_are_escaped() -> None:
    model = nn.Sequential()
    model.add_module("</script><b>", nn.Linear(6, 8))
    model.add_module("relu", nn.ReLU())
    model.add_module("out", nn.Linear(8, 3))
    result = interpress.compress(model, torch.randn(60, 6), width=0.5)
    assert "</script><b>" not in html_tables(result)

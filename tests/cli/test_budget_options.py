"""Every budget of the registry is an option of compress."""

from dataclasses import replace
from typing import Any

import pytest
import typer
from tests.cli.conftest import Shell

from interpress.budgets.registry import BUDGETS
from interpress.cli.budget_options import budget_from, budget_parameters
from interpress.cli.failing import guarded
from interpress.cli.records import expand_records
from interpress.errors import ArgumentError


def test_help_describes_every_budget(shell: Shell) -> None:
    assert shell("compress", "--help") == 0
    text = " ".join(shell.out.replace("│", " ").split())
    for name, rule in BUDGETS.items():
        assert f"--{name} " in text
        assert rule.meaning[1:] in text


def test_a_new_budget_is_an_option_and_is_named_in_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = replace(BUDGETS["flops"], meaning="fraction of the energy to keep", example=0.25)
    monkeypatch.setitem(BUDGETS._parts, "peak_energy", rule)
    app = typer.Typer()
    received: list[Any] = []

    @app.command()
    @expand_records(keywords=budget_parameters())
    def compress(**budget: float | None) -> None:
        received.append(budget_from(budget))

    @app.command()
    def other() -> None: ...

    assert guarded(app, ["compress", "--peak-energy", "0.5"]) == 0
    assert (received[0].kind, received[0].value) == ("peak_energy", 0.5)
    assert guarded(app, ["compress", "--help"]) == 0
    assert "Fraction of the energy to keep" in capsys.readouterr().out
    assert guarded(app, ["compress"]) == 2
    assert "peak_energy" in capsys.readouterr().err


def test_exactly_one_budget_is_needed() -> None:
    with pytest.raises(ArgumentError, match="exactly one budget"):
        budget_from({"flops": None, "params": None})

"""The help of every command."""

import subprocess
import sys

import pytest
from tests.cli.conftest import Shell

import interpress

COMMANDS = ["inspect", "compress", "evaluate", "curve", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_and_fits_80_columns(
    shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert shell(command, "--help") == 0
    assert f"Example: interpress {command}" in " ".join(shell.out.split())
    assert max(map(len, shell.out.splitlines())) <= 80
    assert "…" not in shell.out


def test_root_help_lists_the_commands(shell: Shell) -> None:
    assert shell("--help") == 0
    assert all(command in shell.out for command in COMMANDS)


def test_version(shell: Shell) -> None:
    assert shell("--version") == 0
    assert shell.out.strip() == interpress.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_torch(command: str) -> None:
    script = (
        "import sys; from interpress.cli.app import run\n"
        f"try: run([{command!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_a_command_without_arguments_prints_its_help(shell: Shell) -> None:
    assert shell("compress") == 2
    assert "Usage:" in shell.out
    assert shell.err == ""

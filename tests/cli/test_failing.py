"""Exit codes, and errors in the words of the command line."""

import re

import pytest
from tests.cli.conftest import Shell

import interpress
from interpress.cli.failing import Option, in_option_words

GOOD = (
    "compress", "nets.py:small", "--weights", "w.safetensors", "--data", "x.npy",
    "--flops", "0.5", "--out", "out",
)  # fmt: skip
OPTIONS = {
    "flops": Option("--flops"),
    "error": Option("--error"),
    "exclude": Option("--exclude"),
    "round_to": Option("--round-to"),
    "size": Option("--size"),
    "data": Option("--data"),
    "method": Option("--method"),
    "refit": Option("--refit", is_switch=True, negative="--no-refit"),
    "gray": Option("--gray", is_switch=True),
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("flops=0.3 is out of range", "--flops 0.3 is out of range"),
        ("flops=1e-05 cannot be reached", "--flops 1e-05 cannot be reached"),
        ("round_to=0; give more", "--round-to 0; give more"),
        ("got flops=nan and error=-1", "got --flops nan and --error -1"),
        ("such as flops=0.5.", "such as --flops 0.5."),
        ("use flops= or error=, or kind=", "use --flops or --error, or kind="),
        ("pass data=", "pass --data"),
        ("`exclude=['a', 'b.*']`", "`--exclude a --exclude 'b.*'`"),
        ("method='magic' is not known", "--method magic is not known"),
        ("set refit=False", "set --no-refit"),
        ("set refit=True", "set --refit"),
    ],
)
def test_arguments_become_options(message: str, expected: str) -> None:
    assert in_option_words(message, OPTIONS) == expected


@pytest.mark.parametrize(
    "message",
    [
        "memory=2.0; give the GiB",  # not an option
        "use Method(refit=False, method='marginal')",  # Python code
        "kernel_size=3 and a.size=3",
        "runs/size=3/x.npy does not exist",
        "size=3x3",
        "size==3",
        "gray=False",  # no flag turns it off
        "exclude=[0.1 0.2] and exclude=[]",
        "data=loader",
        "the error is 0.5",
    ],
)
def test_other_text_stays_as_it_is(message: str) -> None:
    assert in_option_words(message, OPTIONS) == message


def test_library_errors_name_options(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise interpress.ArgumentError("give exclude=['0'], round_to=2, kind='binary' or top='x'")

    monkeypatch.setattr("interpress.compress", fail, raising=False)
    assert shell(*GOOD) == 2
    assert shell.err == "error: give --exclude 0, --round-to 2, --kind binary or top='x'\n"


def test_text_that_the_command_line_quotes_stays_as_it_is(shell: Shell) -> None:
    with open("picky.py", "w") as file:
        file.write("def net():\n    raise ValueError('size=3 is too small')\n")
    assert shell("inspect", "picky.py:net", "--shape", "3,8,8") == 2
    assert "(ValueError: size=3 is too small)" in shell.err


def test_debug_shows_the_traceback(shell: Shell) -> None:
    assert shell(*GOOD, "--params", "0.5", "--debug") == 2
    assert "Traceback" in shell.err
    assert shell("--debug", *GOOD, "--params", "0.5") == 2
    assert "Traceback" in shell.err


@pytest.mark.parametrize(
    ("error", "status", "pattern"),
    [
        (ZeroDivisionError("what"), 1, r"error: ZeroDivisionError: what; .*--debug.*\n"),
        (MemoryError(), 2, r"error: not enough memory; .*--batch.*\n"),
        (OSError(28, "No space left on device", "out"), 2, r"error: out: No space left .*\n"),
        (KeyboardInterrupt(), 130, r"error: interrupted; nothing was written\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_failure_is_one_line(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    pattern: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("interpress.compress", fail, raising=False)
    assert shell(*GOOD) == status
    assert re.fullmatch(pattern, shell.err)

"""Print every failure as one line, in the words of the command line, and return an exit code.

2 is bad input, 130 an interrupt, and 1 an error that interpress did not expect.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import typer

from interpress.errors import InterpressError, MisfitError

_running: ContextVar[tuple[str, ...]] = ContextVar("arguments of the running command")
_if_misfit: ContextVar[str] = ContextVar("what to do if the data do not fit", default="")
BAD_INPUT, UNEXPECTED, INTERRUPTED = 2, 1, 130
_INTERRUPTED = "interrupted; nothing was written"


def guarded(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command and return its exit code; `--debug`, anywhere, shows tracebacks."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = warn
    for stream in (sys.stdout, sys.stderr):  # a terminal may not know all characters of a table
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    interrupts: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    token, misfit_token = _running.set(tuple(arguments)), _if_misfit.set("")
    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGINT, interrupt) if in_main_thread else None
    try:
        status = app(arguments, standalone_mode=False)
    except KeyboardInterrupt:
        return _fail(_INTERRUPTED, INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if interrupts:  # some libraries turn a KeyboardInterrupt into an error of their own
            return _fail(_INTERRUPTED, INTERRUPTED)
        return _explain(error, _options(app, arguments))
    finally:
        _running.reset(token)
        _if_misfit.reset(misfit_token)
        if in_main_thread:
            signal.signal(signal.SIGINT, previous)
    if status == INTERRUPTED:  # Typer may catch the interrupt and return this status
        return _fail(_INTERRUPTED, INTERRUPTED)
    return status if isinstance(status, int) else 0


def command_line() -> str:
    """Return the command that is running, as it can be typed again; empty if none is."""
    arguments = _running.get(())
    return shlex.join(["interpress", *arguments]) if arguments else ""


def advise_if_misfit(remedy: str) -> None:
    """Say what the user can do if the model does not run on the data, in words of options."""
    _if_misfit.set(remedy)


def _explain(error: Exception, options: Mapping[str, Option]) -> int:
    if type(error).__name__ == "Abort":
        return _fail(_INTERRUPTED, INTERRUPTED)
    if hasattr(error, "format_message"):  # Typer could not parse the options
        message = error.format_message().rstrip(".")
        return _fail(f"{message}; see --help", BAD_INPUT) if message else BAD_INPUT
    if isinstance(error, MisfitError) and (remedy := _if_misfit.get()):
        return _fail(f"{error.fault}; {remedy}", BAD_INPUT)
    if isinstance(error, InterpressError):
        message = str(error)
        if not _raised_by_command_line(error):
            message = in_option_words(message, options)
        return _fail(message, BAD_INPUT)
    if isinstance(error, MemoryError):
        return _fail("not enough memory; use a smaller --batch or --limit", BAD_INPUT)
    if isinstance(error, OSError):
        name = error.filename or ""
        return _fail(f"{name}: {error.strerror or error}".lstrip(": "), BAD_INPUT)
    kind = type(error).__name__
    return _fail(f"{kind}: {error}; run again with --debug for the traceback", UNEXPECTED)


def _fail(message: str, status: int) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return status


def warn(message: Any, *_: Any, **__: Any) -> None:
    """Print a warning as one line."""
    print("warning: " + " ".join(str(message).split()), file=sys.stderr)


def note(message: str) -> None:
    """Print what was decided, beside the output of a command."""
    print("note: " + " ".join(message.split()), file=sys.stderr)


@dataclass(frozen=True)
class Option:
    """The spelling of an option on the command line."""

    flag: str
    is_switch: bool = False
    """Whether the flag stands alone, without a value."""
    negative: str | None = None
    """The flag that turns a switch off."""

    def spell(self, value: Any) -> str | None:
        """Return the words that give the option this value, or None if there are none."""
        if self.is_switch:
            return self.flag if value is True else self.negative if value is False else None
        values = value if isinstance(value, list | tuple) else [value]
        return " ".join(f"{self.flag} {shlex.quote(str(v))}" for v in values) or None


def _options(app: typer.Typer, arguments: list[str]) -> dict[str, Option]:
    """Return the options of the command that was called, by the names that Python uses."""
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    command = next((commands[word] for word in arguments if word in commands), None)
    options = {}
    for parameter in [] if command is None else command.params:
        flag = next((name for name in parameter.opts if name.startswith("--")), None)
        if flag is not None:
            negative = next(iter(parameter.secondary_opts), None)
            name = flag.removeprefix("--").replace("-", "_")
            options[name] = Option(flag, bool(getattr(parameter, "is_flag", False)), negative)
    return options


def _raised_by_command_line(error: Exception) -> bool:
    """Return whether an error comes from this package, whose messages name options already."""
    modules = [f.f_globals.get("__name__", "") for f, _ in traceback.walk_tb(error.__traceback__)]
    return bool(modules) and modules[-1].startswith("interpress.cli.")


_VALUE = r"""'[^']*'|"[^"]*"|\[[^\[\]]*\]|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|True|False|nan|inf"""
_ARGUMENT = re.compile(
    r"(?P<call>\w\([^()]*\))"  # Python code such as Method(refit=False) stays as it is
    rf"|(?<![\w./=-])(?P<name>[a-z_]+)=(?P<value>{_VALUE})?(?![^\s.,;:)\]`])"
)


def in_option_words(message: str, options: Mapping[str, Option]) -> str:
    """Return a message of the library with `--name value` for every `name=value` of an option."""

    def translate(match: re.Match[str]) -> str:
        option = options.get(match["name"] or "")
        if option is None:
            return match[0]
        if match["value"] is None:
            return option.flag
        return option.spell(_parse(match["value"])) or match[0]

    return _ARGUMENT.sub(translate, message)


def _parse(text: str) -> Any:
    """Return the Python value of a matched text; a number keeps its spelling."""
    try:
        return ast.literal_eval(text) if text[0] in "'\"[TF" else text
    except (ValueError, SyntaxError):
        return []

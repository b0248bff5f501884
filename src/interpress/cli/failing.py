"""Every failure as one line: 2 for bad input, 130 for an interrupt, 1 for what nobody foresaw."""

from __future__ import annotations

import io
import signal
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

BAD_INPUT, UNFORESEEN, INTERRUPTED = 2, 1, 130


def guarded(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command; `--debug`, anywhere, shows tracebacks."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = warn
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows ASCII alone still gets a table
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    interrupted: list[int] = []

    def remember(number: int, frame: Any) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, remember) if main else None
    try:
        status = app(arguments, standalone_mode=False)
    except KeyboardInterrupt:
        return _say("interrupted; nothing was written", INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if interrupted:  # whatever it broke on its way
            return _say("interrupted; nothing was written", INTERRUPTED)
        return _explained(error)
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if status == INTERRUPTED:  # the parser of options catches it first
        return _say("interrupted; nothing was written", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _explained(error: Exception) -> int:
    from interpress.errors import InterpressError

    kind = type(error).__name__
    if kind == "Abort":
        return _say("interrupted; nothing was written", INTERRUPTED)
    if hasattr(error, "format_message"):  # what the parser of options raises
        return _say(f"{error.format_message()}; see --help", BAD_INPUT)
    if isinstance(error, InterpressError):
        return _say(str(error), BAD_INPUT)
    if isinstance(error, MemoryError):
        return _say("not enough memory; use a smaller --batch or --limit", BAD_INPUT)
    if isinstance(error, OSError):
        name = error.filename or ""
        return _say(f"{name}: {error.strerror or error}".lstrip(": "), BAD_INPUT)
    return _say(f"{kind}: {error}; run again with --debug for the traceback", UNFORESEEN)


def _say(message: str, status: int) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return status


def warn(message: Any, *_: Any, **__: Any) -> None:
    """One line that does not stop anything."""
    print("warning: " + " ".join(str(message).split()), file=sys.stderr)

"""The exceptions of interpress. Every message names the thing, the number and the remedy."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


class InterpressError(Exception):
    """Base class of all exceptions that interpress raises deliberately."""


class ArgumentError(InterpressError, ValueError):
    """An argument is out of range, of the wrong kind, or contradicts another one."""


class DataError(InterpressError, ValueError):
    """The data cannot be used: NaN, Inf, out of range, empty, or of the wrong shape."""


class CaptureError(InterpressError, RuntimeError):
    """A model cannot be captured as a graph of operators."""


class MisfitError(CaptureError):
    """A model does not run on its inputs: often they have the wrong shape or dtype.

    The command line puts a remedy of its own in the place of `remedy`.
    """

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}; {remedy}")
        self.fault = fault
        self.remedy = remedy


class SurgeryError(InterpressError, RuntimeError):
    """A smaller network could not be built, or the projection identity does not hold for it."""


class StorageError(InterpressError, OSError):
    """A file is missing, damaged, or was not written by interpress."""


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn, and point to the line outside of interpress that called it."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "interpress":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)

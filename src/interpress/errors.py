"""What interpress raises. Every message names the thing, the number and the remedy."""


class InterpressError(Exception):
    """Base of everything this package raises on purpose."""


class ArgumentError(InterpressError, ValueError):
    """An argument is out of range, of the wrong kind, or contradicts another one."""


class DataError(InterpressError, ValueError):
    """The numbers handed over cannot be used: NaN, Inf, or beyond the safe range."""


class CaptureError(InterpressError, RuntimeError):
    """A model cannot be turned into a graph of operators."""


class SurgeryError(InterpressError, RuntimeError):
    """A smaller network could not be built, or could not be proved equal to what was planned."""


class StorageError(InterpressError, OSError):
    """A file is missing, damaged, or was written by something else."""

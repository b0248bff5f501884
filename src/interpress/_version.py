"""The version of interpress."""

__version__ = "0.2.0"

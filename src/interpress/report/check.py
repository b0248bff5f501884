"""`Check`: one rule behind the verdict, and what was found."""

from __future__ import annotations

from dataclasses import dataclass

LIMIT = 0.05
"""The change that passes unless the user asked for a smaller one: of decisions, of the perplexity,
or of outputs relative to their standard deviation."""


@dataclass(frozen=True)
class Check:
    """One rule, what was found, and what to do if it did not hold."""

    rule: str
    found: str
    passed: bool
    remedy: str = ""
    is_final: bool = False
    """Whether it only asks for one more measurement."""
    is_undecided: bool = False
    """Whether the measurement is too noisy to tell; the verdict then ignores the rule."""

    is_of_data: bool = False
    """Whether the examples cannot show what the other rules ask for."""
    hint: str = ""
    """A few words of advice for the command line."""

    @property
    def failed(self) -> bool:
        """Whether the rule keeps the network from being shipped."""
        return not self.passed and not self.is_undecided

    @property
    def mark(self) -> tuple[str, str]:
        """How the page marks it: a kind of mark, and its word."""
        if self.passed:
            return "pass", "passed"
        if self.is_undecided:
            return "open", "undecided"
        return ("open", "still open") if self.is_final else ("fail", "not passed")

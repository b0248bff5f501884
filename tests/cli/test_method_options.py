"""The names in the help are those of the registries."""

from interpress.cli.method_options import (
    ALLOCATION_NAMES,
    METHOD_NAMES,
    SELECTION_NAMES,
    MethodOptions,
)
from interpress.extend import ALLOCATIONS, SELECTIONS
from interpress.method import BEST, METHODS


def test_names_are_those_of_the_library() -> None:
    assert list(METHOD_NAMES) == list(METHODS)
    assert set(SELECTION_NAMES) <= set(SELECTIONS)
    assert set(ALLOCATION_NAMES) <= {BEST, *ALLOCATIONS}


def test_changes_are_the_parts_that_were_given() -> None:
    assert MethodOptions().changes() == {}
    options = MethodOptions(selection="l1", refit=False)
    assert options.changes() == {"selection": "l1", "refit": False}

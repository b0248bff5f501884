"""The garbage collector sets old objects aside, and puts them back."""

from __future__ import annotations

import gc
import weakref

import pytest

from interpress.graph.garbage import old_objects_set_aside


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_only_new_objects_are_searched() -> None:
    old, gone = Node(), weakref.ref(Node())
    gc.collect()
    assert gone() is None
    with old_objects_set_aside():
        assert gc.get_freeze_count() > 1000
        new = weakref.ref(Node())
        gc.collect()
        assert new() is None
        with old_objects_set_aside():
            pass
        assert gc.get_freeze_count() > 1000  # the inner call leaves it to the outer one
    assert gc.get_freeze_count() == 0
    assert old.itself is old


def test_objects_are_put_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), old_objects_set_aside():
        raise ValueError("inside")
    assert gc.get_freeze_count() == 0


def test_a_collector_that_is_off_is_left_alone() -> None:
    gc.disable()
    try:
        with old_objects_set_aside():
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()

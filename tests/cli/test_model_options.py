"""The options of a model are checked when the record is made."""

import pytest

from interpress.cli.model_options import ModelOptions
from interpress.errors import ArgumentError


def test_values_are_json_or_text() -> None:
    options = ModelOptions("nets.py:small", ["classes=4", "name=wide", "sizes=[1, 2]", "bias=true"])
    assert options.keywords() == {"classes": 4, "name": "wide", "sizes": [1, 2], "bias": True}
    assert ModelOptions("nets.py:small").keywords() == {}


@pytest.mark.parametrize("argument", ["classes", "=4", "two words=4"])
def test_arguments_without_a_name_or_value_are_refused(argument: str) -> None:
    with pytest.raises(ArgumentError, match=r"--model-arg .* KEY=VALUE"):
        ModelOptions("nets.py:small", [argument])


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="MODEL is empty"):
        ModelOptions("")

"""The tensors of an output get names, and the structure can be filled again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from interpress import DataError
from interpress.evaluation.outputs import OutputLayout, flatten_output, listed, natural_order

A, B, C = torch.zeros(2, 3), torch.ones(2, 4), torch.full((2,), 2)


class Pair(NamedTuple):
    scores: Tensor
    box: Tensor


@dataclasses.dataclass
class Heads:
    scores: Tensor
    missing: Tensor | None
    box: Tensor


CASES: list[tuple[Any, list[str]]] = [
    (A, [""]),
    ((A, B), ["[0]", "[1]"]),
    ([A, 3, None, B], ["[0]", "[3]"]),
    ({"cls": A, "box": B}, ["cls", "box"]),
    (OrderedDict(box=B, cls=A), ["box", "cls"]),
    ({"heads": {"box": B}, "extra": [A, (C,)]}, ["heads.box", "extra[0]", "extra[1][0]"]),
    (Pair(A, B), ["scores", "box"]),
    (Heads(A, None, B), ["scores", "box"]),
    ({"all": [Heads(A, None, B)]}, ["all[0].scores", "all[0].box"]),
    ({0: A, "a.b": B, "": C}, ["[0]", "['a.b']", "['']"]),
]


@pytest.mark.parametrize(("output", "names"), CASES)
def test_a_name_is_a_path(output: Any, names: list[str]) -> None:
    tensors, layout = flatten_output(output)
    assert list(tensors) == list(layout.names) == names
    doubled = layout.rebuild([2 * tensor for tensor in tensors.values()])
    assert type(doubled) is type(output)
    again, same = flatten_output(doubled)
    assert same == layout
    for name, tensor in tensors.items():
        assert torch.equal(again[name], 2 * tensor)


def test_outputs_of_transformers_have_the_names_of_their_fields() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.SequenceClassifierOutput(logits=A, hidden_states=(B, B))
    tensors, layout = flatten_output(output)
    assert list(tensors) == ["logits", "hidden_states[0]", "hidden_states[1]"]
    assert layout.rebuild([B, A, A]).logits is B


def test_another_network_is_matched_by_name() -> None:
    _, layout = flatten_output({"cls": A, "box": B})
    assert layout.aligned({"box": B, "cls": A}) == [A, B]
    with pytest.raises(DataError, match=r"outputs 'box', 'cls' and the other 'box', 'mask'"):
        layout.aligned({"box": B, "mask": A})
    assert OutputLayout().aligned({"logits": A})[0] is A  # one tensor each


def test_other_numbers_of_tensors_cannot_be_filled_in() -> None:
    _, layout = flatten_output((A, B))
    with pytest.raises(DataError, match="returns 1 tensors, but 2 were expected"):
        layout.rebuild([A])


def test_indices_are_ordered_as_numbers() -> None:
    assert sorted(["[10]", "[2]", "box"], key=natural_order) == ["[2]", "[10]", "box"]
    assert listed({"b": 1, "a": 2}) == "'a', 'b'"

"""Descriptions of examples: shapes, dtypes and ranges, but no values."""

from __future__ import annotations

import json

import torch

from interpress.graph.example import Example
from interpress.storage.example_description import describe, random_example

EXAMPLE = Example(
    (3 + torch.rand(4, 5), torch.randint(7, 9, (4, 3))),
    {"mask": torch.ones(4, dtype=torch.bool), "scale": 2.5, "half": torch.rand(4).half()},
)


def drawn(example: Example) -> Example:
    return random_example(json.loads(json.dumps(describe(example))), torch.device("cpu"))


def test_a_similar_example_is_drawn_from_a_description() -> None:
    example = drawn(EXAMPLE)
    for old, new in zip(EXAMPLE.tensors(), example.tensors(), strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        assert float(new.double().min()) >= float(old.double().min())
        assert float(new.double().max()) <= float(old.double().max())
    assert not torch.equal(example.args[0], EXAMPLE.args[0])
    assert example.kwargs["scale"] == 2.5


def test_the_same_example_is_drawn_every_time() -> None:
    first, again = drawn(EXAMPLE), drawn(EXAMPLE)
    pairs = zip(first.tensors(), again.tensors(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_nested_inputs_and_empty_tensors() -> None:
    nested = Example(({"a": [torch.rand(2, 3), None]}, torch.zeros(0, 3)))
    example = drawn(nested)
    assert example.args[0]["a"][0].shape == (2, 3)
    assert example.args[0]["a"][1] is None
    assert example.args[1].shape == (0, 3)

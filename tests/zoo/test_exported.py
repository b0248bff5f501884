"""Networks of the zoo are compressed from `.pt2` files as they are from source."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.zoo.checks import difference
from tests.zoo.members import ZOO, build
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

from interpress import compress, read_exported
from interpress.graph.capture import register_outputs
from interpress.graph.example import Example
from interpress.result import Result

pytest.importorskip("transformers", reason="the zoo's language models are built from its configs")

QUICK = ["mlp", "mobilenet_v1", "densenet", "c2f_split", "vit", "llama"]
SHARED_SIZES = {"bert", "detr", "t5"}
"""In their code, one attribute is the size of keys and of values. A program has two numbers."""
FIXED_SIZES = {"c2psa", "llama", "qwen3"}
"""Their code has a size that cannot be changed from outside. In a program it can."""
OTHER_WIDTHS = {"bert", "c2psa", "detr", "t5"}
BUDGETS = {"recurrent": 0.9}
pytestmark = pytest.mark.filterwarnings(
    "ignore::interpress.MemorizedWarning", "ignore:The tensor attributes self:UserWarning"
)


def inputs_of(name: str, example: Any) -> Example:
    """Return enough examples to compress with."""
    batch = Example.of(example)
    torch.manual_seed(1)
    batch = batch.map(lambda t: torch.cat([t] * 8))
    return batch.map(lambda t: torch.randn_like(t) if t.is_floating_point() else t)


def exported_file(model: nn.Module, example: Example, folder: Path) -> Path:
    with torch.no_grad():
        register_outputs(example.call(model))
    free = pytree.tree_map(lambda t: {0: Dim.AUTO}, (example.args, dict(example.kwargs)))
    shapes = free[1] or free[0]
    program = export(model, example.args, dict(example.kwargs), dynamic_shapes=shapes, strict=False)
    torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def widths_of(model: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in model.named_parameters()}


@cache
def from_source(name: str) -> tuple[Result, Any]:
    model, example = build(name)
    batch = inputs_of(name, example)
    data = batch.args[0] if batch.args else dict(batch.kwargs)
    return compress(model, data, flops=BUDGETS.get(name, 0.8)), data


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in ZOO],
)
def test_a_file_gives_what_the_source_gives(name: str, tmp_path: Path) -> None:
    model, example = build(name)
    path = exported_file(model.eval(), Example.of(example), tmp_path)
    network = read_exported(path)
    assert difference(network, model, example) < 1e-6
    source, data = from_source(name)
    result = compress(path, data, flops=BUDGETS.get(name, 0.8))
    more = {s.name for s in result.spaces.shrinkable} - {s.name for s in source.spaces.shrinkable}
    assert bool(more) == (name in SHARED_SIZES | FIXED_SIZES)
    if name in FIXED_SIZES:
        reasons = [space.frozen for space in source.spaces if space.name in more]
        assert reasons
        assert all("the code of" in str(reason) for reason in reasons)
    same = widths_of(result.model) == widths_of(source.model)
    assert same == (name not in OTHER_WIDTHS)
    if same:
        assert difference(result.model, source.model, example) < 1e-4
    result.save_exported(tmp_path / "smaller.pt2")
    again = torch.export.load(tmp_path / "smaller.pt2").module()
    assert difference(again, result.model, example) < 1e-6


def test_nine_of_ten_have_the_same_widths() -> None:
    assert len(OTHER_WIDTHS) <= 0.1 * len(ZOO)

"""Networks of low rank as folders: they come back bit for bit into a freshly built original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lowrank.planted import images, planted_cnn
from torch import nn

import interpress
from interpress import ArgumentError, Result, StorageError, load
from interpress.storage.ranks import checked_ranks
from interpress.storage.result_folder import PLAN


@pytest.fixture(scope="module")
def result() -> Result:
    return interpress.compress(planted_cnn(), images(200), flops=0.3, lowrank=True, progress=False)


def test_saved_and_loaded_is_the_same_network(result: Result, tmp_path: Path) -> None:
    assert result.ranks
    assert any(row.after < row.before for row in result.plan)
    result.save(tmp_path / "small", report=True)
    fresh = planted_cnn()
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    smaller = load(tmp_path / "small", fresh)
    assert torch.equal(smaller(images(9)), result.model(images(9)))
    assert str(smaller) == str(result.model)
    assert type(fresh[3]) is nn.Conv2d
    smaller.train()(images(5)).sum().backward()


def test_the_plan_has_the_ranks(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    plan = json.loads((tmp_path / "small" / PLAN).read_text())
    assert plan["low_rank"]["ranks"] == dict(result.ranks)
    assert plan["low_rank"]["proof"] < 1e-9
    assert plan["flops"] == [result.before.flops, result.after.flops]


def test_a_loaded_network_can_be_distilled(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    smaller = load(tmp_path / "small", planted_cnn())
    distilled = interpress.distill(planted_cnn(), smaller, images(200), steps=3, progress=False)
    assert [p.shape for p in distilled.model.parameters()] == [
        p.shape for p in smaller.parameters()
    ]


def test_another_architecture_is_refused(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    other = planted_cnn()
    other[3] = nn.Conv2d(24, 32, 1)
    with pytest.raises(StorageError, match=r"'3\.weight' is \[32, 24, 1, 1\]"):
        load(tmp_path / "small", other)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ({"5": 3}, "'5' became two layers, but it is no linear layer"),
        ({"gone": 3}, "'gone' became two layers"),
        ({"3": 0}, "rank 0; it must be 1 to 32"),
        ({"3": 33}, "rank 33; it must be 1 to 32"),
        ({"3": "many"}, "rank 'many'"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(ranks: dict[str, Any], message: str) -> None:
    with pytest.raises(StorageError, match=message):
        checked_ranks(Path("folder"), {"low_rank": {"ranks": ranks}}, planted_cnn())


def test_plans_of_earlier_versions_have_no_ranks() -> None:
    assert checked_ranks(Path("folder"), {}, planted_cnn()) == {}
    assert checked_ranks(Path("folder"), {"low_rank": None}, planted_cnn()) == {}


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
def test_transformers_cannot_load_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.pretrained.models import build, inputs

    from interpress.lowrank.record import LowRank, ThinPair

    result = interpress.compress(build("llama"), [inputs("llama", 40)], width=0.9, progress=False)
    pair = ThinPair("model.layers.0.mlp.up_proj", 3, 8, 8, 10, 4)
    object.__setattr__(result.network, "low_rank", LowRank((pair,)))
    with pytest.raises(ArgumentError, match=r"1 layers .* two thin ones.*result\.save"):
        result.save_pretrained(tmp_path / "smaller")
    assert not list(tmp_path.iterdir())

"""Frozen spaces: a family and a remedy for every reason, and the FLOPs that they keep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tests.zoo.members import build
from torch import nn

import interpress
from interpress import find_spaces
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.frozen import FAMILIES, OTHER, family_of

SOURCES = Path(interpress.__file__).parent


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_every_phrase_is_one_that_the_code_says(family: object) -> None:
    folders = ("labels", "ops", "spaces", "dryrun", "pipeline", "storage")
    files = [file for folder in folders for file in (SOURCES / folder).rglob("*.py")]
    files.remove(SOURCES / "spaces" / "frozen.py")
    said = "".join(file.read_text(encoding="utf-8") for file in files)
    said = re.sub(r'"\s*\n?\s*f?"', "", said)  # strings that continue on the next line
    said = re.sub(r"\{[^{}\n]*\}", "X", said)
    for phrase in family.phrases:  # type: ignore[attr-defined]
        words = phrase.removeprefix("^").replace(".*", "X")
        assert words in said, phrase
        assert family_of(words.replace("X", "aten.add")) is family


@pytest.mark.parametrize(
    "name", ["convnext", "audio", "mixer", "vit", "swin", "llama", "recurrent", "shared_weights",
             "unknown_operator", "einsum_attention", "t5"],
)  # fmt: skip
def test_every_frozen_space_of_the_zoo_has_a_remedy(name: str) -> None:
    pytest.importorskip("transformers")
    model, example = build(name)
    spaces = spaces_of(capture(model, example))
    assert spaces.frozen
    for space in spaces.frozen:
        assert space.frozen is not None
        assert family_of(space.frozen) is not OTHER, space.frozen
        assert space.remedy == family_of(space.frozen).remedy
    assert all(space.remedy is None for space in spaces.shrinkable)


def test_remedies_are_short() -> None:
    assert max(len(family.remedy) for family in FAMILIES) <= 92
    assert max(len(family.title) for family in FAMILIES) <= 34


class Mostly(nn.Module):
    """Three quarters of the FLOPs are in a layer that is excluded on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


def test_shares_are_those_of_operators_that_cannot_shrink() -> None:
    spaces = find_spaces(Mostly(), torch.randn(4, 16), exclude=["a"])
    by_family = {share.family: share for share in spaces.frozen_shares()}
    # both layers read or make the excluded channels; b also makes the output
    assert by_family["excluded"].flops == pytest.approx(0.75)
    assert by_family["output of the model"].flops == pytest.approx(0.25)
    assert by_family["excluded"].spaces == ("a",)
    assert "excluded by the pattern 'a'" in by_family["excluded"].reason
    total = sum(share.flops for share in spaces.frozen_shares())
    assert total == pytest.approx(1 - spaces.cost.shrinkable_share())


def test_what_can_shrink_takes_no_share() -> None:
    (share,) = find_spaces(Mostly(), torch.randn(4, 16)).frozen_shares()
    assert share.family == "output of the model"
    assert share.flops == 0


def test_the_table_lists_what_can_be_done() -> None:
    spaces = find_spaces(Mostly(), torch.randn(4, 16), exclude=["a"])
    text = str(spaces)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "excluded 1 75% leave the module out of exclude" in " ".join(text.split())

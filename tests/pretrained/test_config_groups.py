"""A config is tried, not known: groups are what its attributes really size."""

from __future__ import annotations

from fractions import Fraction

import pytest
import transformers as hf
from tests.pretrained.models import MODELS, build, inputs
from torch import nn

import interpress
from interpress.pretrained.config_edits import (
    Edit,
    attributes,
    changed_weights,
    has_config,
    read,
    shapes_from,
    shapes_of,
)
from interpress.pretrained.config_groups import ConfigGroups

_HEADS = {("num_attention_heads",), ("num_attention_heads", "num_key_value_heads")}
EXPECTED: dict[str, set[tuple[str, ...]]] = {
    "llama": {("intermediate_size",), *_HEADS},
    "qwen2": {("intermediate_size",)},  # its head size is the hidden size over the heads
    "qwen3": {("intermediate_size",), *_HEADS},
    "gpt2": {("n_inner",)},  # which is not set
    "opt": {("ffn_dim",)},
    "bert": {("intermediate_size",)},
    "vit": {("intermediate_size",)},
    "t5": {("d_ff",), ("d_kv",), ("num_heads",)},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_groups_are_those_that_a_config_can_say(name: str) -> None:
    spaces = interpress.find_spaces(build(name), inputs(name, 4))
    groups = ConfigGroups(spaces).find()
    paths = {(*g.edit.scaled, *([g.edit.unset] if g.edit.unset else [])) for g in groups}
    assert {tuple(path[-1] for path in found) for found in paths} == EXPECTED[name]
    members = [name for group in groups for name in group.members]
    assert len(members) == len(set(members))
    sizes = [{spaces[member].size for member in group.members} for group in groups]
    assert all(len(group) == 1 for group in sizes)


def test_a_class_that_ignores_its_config_has_no_groups() -> None:
    class Fixed(hf.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        def __init__(self, config: hf.LlamaConfig) -> None:
            super().__init__(config)
            self.model.layers[0].mlp.gate_proj = nn.Linear(48, 80, bias=True)

    model = Fixed(build("llama").config)
    model.model.layers[0].mlp.gate_proj = nn.Linear(48, 80, bias=False)  # unlike a new one
    spaces = interpress.find_spaces(model.eval(), inputs("llama", 4))
    assert ConfigGroups(spaces).find() == []


def test_edits_give_whole_numbers_or_nothing() -> None:
    config = build("llama").config
    heads = Edit((("num_attention_heads",), ("num_key_value_heads",)))
    edited = heads.applied(config, Fraction(3, 4), 3)
    assert (edited.num_attention_heads, edited.num_key_value_heads) == (6, 3)
    assert config.num_attention_heads == 8
    assert heads.applied(config, Fraction(1, 3), 1) is None
    assert Edit((), unset=("hidden_act",)).applied(config, Fraction(1, 2), 3) is None  # a name


def test_attributes_are_numbers_and_gaps() -> None:
    found = dict(attributes(hf.GPT2Config()))
    assert found["n_embd",] == 768
    assert found["n_inner",] is None
    assert ("bos_token_id",) not in found
    assert read(hf.GPT2Config(), ("n_head",)) == 12


def test_shapes_are_compared_by_name() -> None:
    model = build("llama")
    before = shapes_of(model)
    assert changed_weights(before, shapes_from(model, model.config)) == set()
    assert changed_weights(before, {}) is None
    assert shapes_from(model, "not a config") is None
    assert has_config(model)
    assert not has_config(nn.Linear(2, 2))

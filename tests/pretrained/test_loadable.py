"""Widths that a config refuses to load are not offered."""

from __future__ import annotations

import transformers as hf
from tests.pretrained.models import build

from interpress.pretrained.config_edits import Edit
from interpress.pretrained.config_groups import ConfigGroup
from interpress.pretrained.loadable import loadable_widths

_HEADS, _SHARED = ("num_attention_heads",), ("num_key_value_heads",)
IN_GROUPS = ConfigGroup(("members",), Edit((_HEADS,)))
GROUPS = ConfigGroup(("groups",), Edit((_HEADS, _SHARED)))
NEURONS = ConfigGroup(("neurons",), Edit((("intermediate_size",),)))


def test_heads_must_divide_the_hidden_size() -> None:
    config = hf.LlamaConfig(hidden_size=48, num_attention_heads=12, num_key_value_heads=3)
    allowed = {"members": [12, 9, 6, 3]}
    assert loadable_widths(config, [IN_GROUPS], allowed) == {"members": [12, 6, 3]}
    assert loadable_widths(config, [NEURONS], {"neurons": [700, 3]}) == {"neurons": [700, 3]}


def test_widths_that_change_the_same_attribute_are_tried_together() -> None:
    config = hf.LlamaConfig(hidden_size=64, num_attention_heads=16, num_key_value_heads=4)
    allowed = {"members": [16, 12, 8, 4], "groups": [4, 3, 2, 1]}
    found = loadable_widths(config, [IN_GROUPS, GROUPS], allowed)
    assert found == {"members": [16, 8, 4], "groups": [4, 2, 1]}


def test_a_config_that_does_not_load_itself_limits_nothing() -> None:
    config = build("llama").config
    config.num_attention_heads = 7
    assert loadable_widths(config, [IN_GROUPS], {"members": [8, 4]}) == {"members": [8, 4]}

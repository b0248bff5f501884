"""Query heads of transformers' models are dropped within the groups that share a key and value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from tests.pretrained.models import VOCABULARY, texts

import interpress
from interpress import Method

KINDS = {
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig),
}


def build(name: str, kv_heads: int, **more: Any) -> Any:
    torch.manual_seed(0)
    kind, config = KINDS[name]
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 36, "intermediate_size": 40, "head_dim": 4,
        "num_hidden_layers": 2, "num_attention_heads": 9, "num_key_value_heads": kv_heads,
        "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    return kind(config(**sizes, **more)).eval()


def heads(model: Any) -> dict[str, tuple[int, int]]:
    spaces = interpress.find_spaces(model, texts(3))
    return {
        s.name.rpartition(":")[2]: (s.size, s.step)
        for s in spaces.shrinkable
        if s.heads and "layers.1" in s.name
    }


@pytest.mark.parametrize("name", KINDS)
def test_grouped_queries_have_two_spaces_of_heads(name: str) -> None:
    assert heads(build(name, 3)) == {"heads": (3, 1), "heads-per-group": (9, 3)}


@pytest.mark.parametrize("kv_heads", [1, 9])
def test_one_group_or_groups_of_one_head_have_one_space(kv_heads: int) -> None:
    assert heads(build("llama", kv_heads)) == {"heads": (9, 1)}
    assert heads(build("llama", kv_heads, attn_implementation="eager")) == {"heads": (9, 1)}


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_redundant_query_heads_are_dropped_without_any_change(name: str) -> None:
    model = build(name, 3)
    with torch.no_grad():
        for layer in model.model.layers:
            rows = layer.self_attn.q_proj.weight.view(3, 3, 4, -1)
            for group, (dropped, copied) in enumerate([(0, 1), (2, 0), (1, 2)]):
                rows[group, dropped] = rows[group, copied]
    method = Method(allocation="heads-per-group", refit=False, regularize=False)
    result = interpress.compress(
        model, texts(80), flops=0.9, method=method, exclude=["*.mlp"], same_widths=True,
        progress=False,
    )  # fmt: skip
    small: Any = result.model
    assert (small.config.num_attention_heads, small.config.num_key_value_heads) == (6, 3)
    assert small.model.layers[0].self_attn.num_key_value_groups == 2
    x = texts(5, seed=1)
    with torch.no_grad():
        expected = model(x).logits
        assert torch.allclose(small(x).logits, expected, atol=1e-3 * float(expected.abs().max()))
    start = {"input_ids": x, "max_new_tokens": 5, "do_sample": False}
    assert torch.equal(small.generate(**start), model.generate(**start))

"""Small models of transformers, one per architecture, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

VOCABULARY = 96
_TOKENS: dict[str, Any] = {
    "vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_LAYERS: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA: dict[str, Any] = {
    **_TOKENS, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "initializer_range": 0.2,
}  # fmt: skip


def texts(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (count, 9), generator=generator)


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA))


def qwen2() -> nn.Module:
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(**_LLAMA))


def qwen3() -> nn.Module:
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**_LLAMA, head_dim=12))


def gpt2() -> nn.Module:
    config = hf.GPT2Config(**_TOKENS, n_embd=48, n_layer=2, n_head=4, n_positions=64)
    return hf.GPT2LMHeadModel(config)


def opt() -> nn.Module:
    config = hf.OPTConfig(
        **_TOKENS, **_LAYERS, ffn_dim=80, max_position_embeddings=64, word_embed_proj_dim=48
    )
    return hf.OPTForCausalLM(config)


def bert() -> nn.Module:
    config = hf.BertConfig(vocab_size=VOCABULARY, **_LAYERS, intermediate_size=80)
    return hf.BertForMaskedLM(config)


def vit() -> nn.Module:
    config = hf.ViTConfig(
        **_LAYERS, intermediate_size=80, image_size=16, patch_size=4, num_labels=5
    )
    return hf.ViTForImageClassification(config)


def t5() -> nn.Module:
    config = hf.T5Config(
        vocab_size=VOCABULARY, d_model=48, d_ff=80, d_kv=12, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    return hf.T5ForConditionalGeneration(config)


def gemma3n() -> nn.Module:
    """Its config has one size of the MLP per layer."""
    config = hf.Gemma3nTextConfig(
        **_TOKENS, vocab_size_per_layer_input=VOCABULARY, hidden_size=48,
        hidden_size_per_layer_input=8, intermediate_size=[80, 80, 80], num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=12, altup_num_inputs=2,
        laurel_rank=8, layer_types=["sliding_attention", "full_attention", "full_attention"],
        num_kv_shared_layers=0, activation_sparsity_pattern=[0.0] * 3,
    )  # fmt: skip
    return hf.Gemma3nForCausalLM(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    function.__name__: function for function in (llama, qwen2, qwen3, gpt2, opt, bert, vit, t5)
}


def llama_of_four() -> nn.Module:
    """Its groups have four query heads each."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**_LLAMA, "num_key_value_heads": 2}))


def qwen3_of_four() -> nn.Module:
    """Its groups have four query heads each."""
    config = {**_LLAMA, "num_key_value_heads": 2, "head_dim": 6}
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**config))


OTHERS: dict[str, Callable[[], nn.Module]] = {
    function.__name__: function for function in (gemma3n, llama_of_four, qwen3_of_four)
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return {**MODELS, **OTHERS}[name]().eval()


def inputs(name: str, count: int) -> dict[str, Tensor]:
    if name == "vit":
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(count, 3, 16, 16, generator=generator)}
    found = {"input_ids": texts(count)}
    return found | {"decoder_input_ids": texts(count, 1)} if name == "t5" else found

"""Transformers and mixers: written out here, or built from `transformers` configurations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Fused query, key and value; heads and their dims read from attributes."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.scale = self.head_dim**-0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, ratio: int = 4) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.LayerNorm(width),
        )
        self.mlp = nn.Sequential(
            nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(
        self,
        size: int = 16,
        patch: int = 4,
        width: int = 24,
        depth: int = 2,
        heads: int = 3,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) / 4)
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) / 4)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Mixer(nn.Module):
    class Block(nn.Module):
        def __init__(self, tokens: int, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(tokens, 10), nn.GELU(), nn.Linear(10, tokens))
            self.channels = nn.Sequential(nn.Linear(width, 20), nn.GELU(), nn.Linear(20, width))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.blocks = nn.Sequential(self.Block(16, 12), self.Block(16, 12))
        self.head = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patch(x).flatten(2).transpose(1, 2))
        return self.head(x.mean(1))


class WindowAttention(nn.Module):
    """Swin's attention: relative position bias from a table, and a shift mask."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.scale = heads, width // heads, (width // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(
            torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        ).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", (apart[..., 0] * (2 * window - 1) + apart[..., 1]).view(-1))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q * self.scale).matmul(k.transpose(-2, -1))
        scores = scores + self.table[self.index].view(n, n, -1).permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(b // windows, windows, self.num_heads, n, n) + mask[None, :, None]
            scores = scores.view(-1, self.num_heads, n, n)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class SwinBlock(nn.Module):
    def __init__(self, width: int, heads: int, size: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift if size > window else 0
        self.norm1, self.attn = nn.LayerNorm(width), WindowAttention(width, heads, window)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        mask = None
        if self.shift:
            area = torch.zeros(size, size)
            edges = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for number, (rows, columns) in enumerate((r, c) for r in edges for c in edges):
                area[rows, columns] = number
            cells = area.view(size // window, window, size // window, window)
            cells = cells.permute(0, 2, 1, 3).reshape(-1, window * window)
            mask = (cells[:, None] != cells[:, :, None]) * -100.0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        k = self.window
        y = y.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        y = self.attn(y, self.mask)
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduction = (
            nn.LayerNorm(4 * width),
            nn.Linear(4 * width, 2 * width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(
        self,
        size: int = 16,
        patch: int = 2,
        window: int = 4,
        width: int = 8,
        depths: tuple[int, ...] = (2, 2),
        heads: tuple[int, ...] = (2, 4),
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patch, self.norm0 = nn.Conv2d(3, width, patch, patch), nn.LayerNorm(width)
        stages: list[nn.Module] = []
        size //= patch
        for index, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            if index:
                stages.append(PatchMerging(width))
                width, size = 2 * width, size // 2
            stages += [
                SwinBlock(width, count, size, window, window // 2 * (i % 2)) for i in range(depth)
            ]
        self.stages = nn.Sequential(*stages)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm0(self.patch(x).permute(0, 2, 3, 1))
        return self.head(self.norm(self.stages(x)).mean((1, 2)))


class EinsumAttention(nn.Module):
    """Attention by einsum over separate projections, divided by the root of the width it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.q, self.k, self.v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return F.relu(self.o(mixed.flatten(-2)))


def huggingface(kind: str) -> nn.Module:
    """A small, randomly initialised model of a `transformers` architecture."""
    import transformers as hf

    small: dict[str, Any] = {"vocab_size": 50}
    llama = {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32, "use_cache": False,
    }  # fmt: skip
    if kind == "bert":
        config = hf.BertConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            max_position_embeddings=32,
            **small,
        )
        return hf.BertForSequenceClassification(config)
    if kind == "gpt2":
        config = hf.GPT2Config(
            n_embd=24, n_layer=2, n_head=3, n_positions=32, use_cache=False, **small
        )
        return hf.GPT2LMHeadModel(config)
    if kind == "t5":
        config = hf.T5Config(
            d_model=24,
            d_kv=8,
            d_ff=40,
            num_layers=2,
            num_heads=3,
            feed_forward_proj="gated-gelu",
            use_cache=False,
            **small,
        )
        return hf.T5ForConditionalGeneration(config)
    if kind == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**llama, **small))
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**llama, **small))

"""`preserve` beside the uniform scheme, on small language models that are trained here.

    python -m benchmarks language-trained --calibrate valid.txt --judge test.txt

A GPT-2-, an OPT- and a Qwen3-shaped network predict the bytes of a text. Each is trained for some
minutes on the first text, calibrated on sequences of the same text, and judged on the second one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import interpress
from benchmarks.tables import table

_VOCABULARY = 256  # one token per byte
_BATCH = 16
_WARM_UP = 50  # steps
_RATE = 1e-3
METHODS = {
    "preserve": interpress.Method(),
    "uniform": interpress.Method(allocation="constant"),
}


def networks(length: int) -> dict[str, Callable[[], nn.Module]]:
    """Return how to build the networks, by name; each has four layers of 128 channels."""
    import transformers as hf

    tokens: dict[str, Any] = {"vocab_size": _VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    layers: dict[str, Any] = {
        "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
        "max_position_embeddings": length,
    }  # fmt: skip
    gpt2 = hf.GPT2Config(**tokens, n_embd=128, n_layer=4, n_head=8, n_positions=length)
    opt = hf.OPTConfig(**tokens, **layers, ffn_dim=512, word_embed_proj_dim=128, pad_token_id=1)
    qwen3 = hf.Qwen3Config(
        **tokens, **layers, num_key_value_heads=4, head_dim=16, intermediate_size=384
    )
    return {
        "GPT-2": lambda: hf.GPT2LMHeadModel(gpt2),
        "OPT": lambda: hf.OPTForCausalLM(opt),
        "Qwen3": lambda: hf.Qwen3ForCausalLM(qwen3),
    }


def main(words: list[str] | None = None) -> None:
    """Train, compress and judge every network, and print the table."""
    options = _parse(words)
    text, other = (_bytes(path) for path in (options.calibrate, options.judge))
    calibration = _sequences(text, options.sequences, options.length, seed=1)
    judged = _sequences(other, options.judged, options.length, seed=2)
    rows = []
    for name, build in networks(options.length).items():
        torch.manual_seed(0)
        model = build().to(options.device)
        steps = train(model, text, options.minutes, options.length)
        analysis = interpress.analyze(model, calibration, progress=False)
        for budget in options.budgets:
            found = {}
            for method, how in METHODS.items():
                result = analysis.compress(flops=budget, method=how, progress=False)
                agreement = interpress.agreement(model, result.model, judged)
                assert agreement.tokens is not None
                found[method] = agreement
            cells = [f"{a.divergence:.4f}, {_ratio(a):.3f}" for a in found.values()]
            rows.append((name, f"{budget:g}", *cells))
            print(*rows[-1], f"({steps} steps, perplexity {_original(agreement):.2f})", flush=True)
    print(table(("network", "FLOPs", *(f"{m}: KL, perplexity ratio" for m in METHODS)), rows))


def train(model: nn.Module, text: Tensor, minutes: float, length: int) -> int:
    """Train on random sequences of a text for some minutes; return the number of steps."""
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    start, step = time.perf_counter(), 0
    model.train()
    while (passed := (time.perf_counter() - start) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:  # linear warm-up, then linear decay
            group["lr"] = _RATE * min((step + 1) / _WARM_UP, 1 - passed)
        first = torch.randint(len(text) - length, (_BATCH,), generator=generator)
        batch = torch.stack([text[at : at + length] for at in first.tolist()]).to(device)
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    model.eval()
    return step


def _bytes(path: Path) -> Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()


def _sequences(text: Tensor, count: int, length: int, seed: int) -> Tensor:
    """Return sequences from random places of a text (count, length)."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(len(text) - length, (count,), generator=generator)
    return torch.stack([text[at : at + length] for at in first.tolist()])


def _ratio(agreement: interpress.Agreement) -> float:
    assert agreement.tokens is not None
    return agreement.tokens.ratio


def _original(agreement: interpress.Agreement) -> float:
    assert agreement.tokens is not None
    return agreement.tokens.perplexity[0]


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks language-trained",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calibrate", type=Path, required=True, help="text to train on")
    parser.add_argument("--judge", type=Path, required=True, help="other text to judge on")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.9, 0.8, 0.7])
    parser.add_argument("--minutes", type=float, default=3.0, help="of training per network")
    parser.add_argument("--sequences", type=int, default=320, help="to calibrate on")
    parser.add_argument("--judged", type=int, default=200, help="sequences to judge on")
    parser.add_argument("--length", type=int, default=128, help="bytes of a sequence")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(words)

"""What a report needs is recorded for every kind of result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interpress import Method, compress, load
from interpress.storage.page_record import curve_record, widths_record
from interpress.storage.result_folder import read_plan

transformers = pytest.importorskip("transformers", reason="the model is built from its config")


def test_spaces_that_same_widths_leaves_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=40, num_labels=3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    tokens = torch.randint(40, (60, 9))
    result = compress(model, tokens, flops=0.85, same_widths=True)
    result.save(tmp_path / "out", report=True)
    curve = read_plan(tmp_path / "out")["report"]["curve"]
    rows = [row.name for row in result.plan]
    sizes = [space.size for space in (result.spaces[name] for name in rows)]
    assert curve["points"][0]["widths"] == sizes
    assert all(len(point["widths"]) == len(rows) for point in curve["points"])
    loaded = load(tmp_path / "out", transformers.BertForSequenceClassification(config))
    assert not loaded.training
    assert torch.equal(loaded(tokens).logits, result.model(tokens).logits)


def test_widths_are_those_that_the_smaller_network_has() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=8, num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    method = Method(allocation="constant", refit=False)
    result = compress(model, torch.randint(48, (30, 12)), width=0.5, method=method)
    attention = result.model.model.layers[0].self_attn
    for row in widths_record(result):
        part = row["name"].rpartition(".")[2]
        if part == "v_proj":
            assert row["frozen"]
            assert row["after"] == len(attention.v_proj.weight) < row["before"]
        if part == "q_proj:heads-per-group":
            assert row["after"] == len(attention.q_proj.weight) // attention.head_dim
        if row["frozen"] and part != "v_proj":  # every head has the dims of a rotary embedding
            assert row["after"] == row["before"]
    names = [row.name for row in result.plan]
    heads = next(i for i, name in enumerate(names) if name.endswith(":heads-per-group"))
    groups = next(i for i, name in enumerate(names) if name.endswith(":heads"))
    for point in curve_record(result)["points"]:
        assert point["widths"][heads] <= 2 * point["widths"][groups]  # two heads of every group

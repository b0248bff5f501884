"""A folder that `from_pretrained` loads: same weights, same logits, same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pretrained.models import MODELS, build, inputs
from torch import nn

import interpress
from interpress import ArgumentError, Method, Result, StorageError

QUICK = Method(allocation="marginal", refit=False)
pytestmark = pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")


def compressed(name: str, **options: Any) -> Result:
    data = [inputs(name, 120)]
    options = {"flops": 0.8, "same_widths": True, "method": QUICK, "progress": False, **options}
    return interpress.compress(build(name), data, **options)


@pytest.mark.parametrize("name", MODELS)
def test_the_round_trip_gives_the_same_network(name: str, tmp_path: Path) -> None:
    result, folder = compressed(name), tmp_path / "smaller"
    result.save_pretrained(folder)
    loaded: Any = type(result.model).from_pretrained(folder).eval()  # type: ignore[attr-defined]
    state = loaded.state_dict()
    for key, tensor in result.model.state_dict().items():
        assert torch.equal(tensor, state[key]), key
    x = inputs(name, 3)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**x).logits, result.model(**x).logits)
    if name not in ("vit", "bert"):
        start = {"input_ids": x["input_ids"], "max_new_tokens": 6, "do_sample": False}
        assert torch.equal(loaded.generate(**start), result.model.generate(**start))  # type: ignore[operator]
    assert result.flops <= 0.8


@pytest.mark.parametrize("name", ["llama_of_four", "qwen3_of_four"])
def test_query_heads_are_dropped_within_groups(name: str, tmp_path: Path) -> None:
    method = Method(allocation="heads-per-group", refit=False)
    result = compressed(name, flops=0.75, method=method)
    result.save_pretrained(tmp_path / "smaller")
    loaded: Any = type(result.model).from_pretrained(tmp_path / "smaller").eval()  # type: ignore[attr-defined]
    heads = loaded.config.num_attention_heads
    assert heads < 8
    assert loaded.config.num_key_value_heads == 2
    attention = result.model.model.layers[0].self_attn  # type: ignore[union-attr]
    assert attention.num_key_value_groups == heads / 2  # type: ignore[union-attr]
    assert len(attention.q_proj.weight) == heads * len(attention.k_proj.weight) / 2  # type: ignore[union-attr]
    x = inputs(name, 3)
    state = loaded.state_dict()
    assert all(torch.equal(t, state[key]) for key, t in result.model.state_dict().items())
    start = {**x, "max_new_tokens": 6, "do_sample": False}
    assert torch.equal(loaded.generate(**start), result.model.generate(**start))  # type: ignore[operator]
    with torch.no_grad():
        torch.testing.assert_close(loaded(**x).logits, result.model(**x).logits)


def test_widths_that_differ_are_refused_with_the_remedy(tmp_path: Path) -> None:
    result = compressed("llama", same_widths=False, method=Method(refit=False))
    mlps = {result.widths[f"model.layers.{number}.mlp.gate_proj"] for number in (0, 1)}
    assert len(mlps) == 2
    with pytest.raises(ArgumentError, match=r"widths from .* same_widths=True, or .*result\.save"):
        result.save_pretrained(tmp_path / "smaller")
    assert not list(tmp_path.iterdir())
    assert result.model.config.intermediate_size == 80  # type: ignore[union-attr]


def test_widths_that_differ_are_written_where_a_config_has_a_list(tmp_path: Path) -> None:
    result = compressed(
        "gemma3n", same_widths=False, method=Method(refit=False), flops=0.9,
        exclude=["*self_attn*", "*laurel*", "*altup*"],
    )  # fmt: skip
    mlps = [result.widths[f"model.layers.{number}.mlp.gate_proj"] for number in range(3)]
    assert len(set(mlps)) > 1
    assert result.model.config.intermediate_size == mlps  # type: ignore[union-attr]
    result.save_pretrained(tmp_path / "smaller")
    loaded: Any = type(result.model).from_pretrained(tmp_path / "smaller").eval()  # type: ignore[attr-defined]
    x = inputs("llama", 3)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**x).logits, result.model(**x).logits)


def test_other_models_are_refused(tmp_path: Path) -> None:
    data = torch.randn(40, 6)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    result = interpress.compress(model, data, flops=0.7, method=QUICK, progress=False)
    with pytest.raises(ArgumentError, match=r"Sequential is not a model of transformers"):
        result.save_pretrained(tmp_path / "smaller")


class Tokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


def test_the_folder_is_replaced_only_if_asked_and_has_the_tokenizer(tmp_path: Path) -> None:
    result, folder = compressed("bert"), tmp_path / "smaller"
    result.save_pretrained(folder, tokenizer=Tokenizer())
    assert (folder / "tokenizer.json").is_file()
    with pytest.raises(StorageError, match="pass overwrite=True"):
        result.save_pretrained(folder)
    result.save_pretrained(folder, overwrite=True)
    assert not (folder / "tokenizer.json").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(StorageError, match="holds other files"):
        result.save_pretrained(tmp_path / "other", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file"):
        result.save_pretrained(tmp_path / "file")


def test_a_result_is_loaded_into_a_config_or_a_folder_of_the_original(tmp_path: Path) -> None:
    model: Any = build("llama")
    model.save_pretrained(tmp_path / "original")
    result = interpress.compress(
        model, [inputs("llama", 60)], flops=0.8, method=QUICK, progress=False
    )
    result.save(tmp_path / "result")
    config = type(model).from_pretrained(tmp_path / "original").config
    for original in (config, tmp_path / "original", str(tmp_path / "original")):
        loaded = interpress.load(tmp_path / "result", original)
        for one, other in zip(loaded.parameters(), result.model.parameters(), strict=True):
            assert torch.equal(one, other)
    with pytest.raises(StorageError, match="has no config that transformers reads"):
        interpress.load(tmp_path / "result", tmp_path / "result")
    with pytest.raises(ArgumentError, match="the original is a int"):
        interpress.load(tmp_path / "result", 3)
    config.architectures = None
    with pytest.raises(ArgumentError, match="does not say which class"):
        interpress.load(tmp_path / "result", config)

"""The page says what is in the result: every number is compared with the objects it stands for."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from tests.report.reading import sections_of
from tests.zoo.members import build
from torch import Tensor, nn

import interpress
from interpress import Method, Result, agreement, demo
from interpress.report.facts import Facts
from interpress.report.page import page_of
from interpress.storage.plan_record import plan_record
from interpress.storage.result_folder import read_plan


@pytest.fixture(scope="module")
def words(page: Path) -> dict[str, str]:
    return sections_of(page.read_text())


def test_the_six_questions_are_answered_with_the_numbers_of_the_result(
    result: Result, words: dict[str, str]
) -> None:
    measured = agreement(result.original, result.model, demo.load_digits().test)
    assert measured.interval is not None
    assert measured.accuracy is not None
    top = words["verdict"]
    assert top.startswith("✓ Ship it: all checks passed")
    assert "What was compressed? DigitNet , a network with 58.5 k parameters" in top
    assert "An input of 1 x 8 x 8 numbers gives an output of 10 numbers." in top
    assert f"{result.flops:.1%}".replace("%", " %") + " of the FLOPs" in top
    assert "asked for as flops=0.3 with the method preserve" in top
    assert "Both networks ran on 597 examples of evaluation data" in top
    changed = len(measured.flips)
    assert f"{changed} of 597 decisions changed" in top
    low, high = (f"{100 * end:.2f} %" for end in measured.interval)
    assert f"{100 * float(measured):.2f} % ( 95 % interval : {low} to {high})" in top
    before, after = (f"{100 * accuracy:.2f} %" for accuracy in measured.accuracy)
    assert f"Accuracy: {before} before, {after} after" in top
    assert "What was left alone, and why?" in top
    assert "The outputs of the model have to keep their width (classifier)." in top
    assert "Nothing had to stay whole" not in top
    assert "What is still to do?" in top


def test_costs_are_those_of_the_result(result: Result, words: dict[str, str]) -> None:
    costs = words["costs"]
    for value in (result.before.flops, result.after.flops, result.after.parameters):
        assert f"{value:,}" in costs
    tensors = [*result.model.parameters(), *result.model.buffers()]
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert f"{stored / 1e3:.3g} kB" in costs
    cost = result.run_cost
    assert cost is not None
    assert cost.activation_bytes is not None
    weights = result.original.parameters(), result.original.buffers()
    memory = sum(t.numel() * t.element_size() for group in weights for t in group)
    assert f"{(memory + cost.activation_bytes[0]) / 1e6:.3g} MB" in costs
    assert f"{100 * cost.ratio:.1f} %" in costs
    assert f"one batch of {cost.examples} examples on cpu" in costs


def test_provenance_can_be_checked(result: Result, folder: Path, words: dict[str, str]) -> None:
    made = words["made"]
    for network in (result.original, result.model):
        digest = hashlib.sha256()
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        assert digest.hexdigest() in made
    assert "interpress.compress(model, data, flops=0.3, seed=0)" in made
    assert f"interpress {interpress.__version__}, torch {torch.__version__}" in made
    assert "240 fitted, 60 held out; input float32 (1, 8, 8)" in made
    assert re.search(r"date \d{4}-\d\d-\d\d", made)
    data = read_plan(folder)["report"]["data"]
    assert data["sha256"] in made
    assert data["fingerprint"] in made


def test_every_width_is_shown_and_frozen_spaces_are_marked(
    result: Result, page: Path, words: dict[str, str]
) -> None:
    for row in result.plan:
        assert f"{row.name} {row.after} of {row.before}" in words["widths"]
    assert "classifier 10 frozen" in words["widths"]
    bars = re.findall(r'class="(kept|frozen)" style="width:([0-9.]+)%"', page.read_text())
    shares = [100 * row.after / row.before for row in result.plan]
    assert [float(share) for _, share in bars] == pytest.approx([*shares, 100.0], abs=0.1)
    assert [kind for kind, _ in bars] == ["kept"] * 3 + ["frozen"]


def test_every_term_that_is_used_is_defined(page: Path) -> None:
    text = page.read_text()
    used = set(re.findall(r'href="#(term-[a-z-]+)"', text))
    assert len(used) > 10
    assert used == set(re.findall(r'<dt id="(term-[a-z-]+)"', text))
    hovered = re.findall(r'class="term" href="#term-[a-z-]+" title="([^"]+)"', text)
    assert min(map(len, hovered)) > 20


def test_it_fetches_nothing_and_escapes_names(page: Path) -> None:
    text = page.read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "{{" not in text
    model = nn.Sequential()
    model.add_module("</script><b>", nn.Linear(6, 8))
    model.add_module("relu", nn.ReLU())
    model.add_module("out", nn.Linear(8, 3))
    result = interpress.compress(model, torch.randn(60, 6), width=0.5)
    assert "</script><b>" not in page_of(plan_record(result))


def test_an_existing_page_is_not_replaced_unasked(result: Result, page: Path) -> None:
    with pytest.raises(interpress.StorageError, match="overwrite=True"):
        result.report(page)
    with pytest.raises(interpress.StorageError, match="cannot write"):
        result.report(page.parent / "nowhere" / "page.html")


def test_the_plan_alone_gives_the_same_page_without_examples(folder: Path, page: Path) -> None:
    again, first = page_of(read_plan(folder)), page.read_text()
    assert "data:image/png" in first
    assert "data:image/png" not in again
    start, end = first.index('<section id="examples"'), first.index('<section id="frozen"')
    assert first[:start] + first[end:] == again


def test_a_plan_of_an_earlier_version_still_has_a_page(folder: Path) -> None:
    record = read_plan(folder)
    del record["report"], record["evaluation"]
    for new in ("accuracy", "confidence", "tokens", "classes", "text", "scores"):
        record["agreement"].pop(new)
    words = sections_of(page_of(record))
    assert "60 examples held out" in words["verdict"]
    assert "Run time and memory were not measured" in words["costs"]
    assert "it is an output of the model" in words["frozen"]


def test_preprocessing_is_shown_where_the_plan_has_it(folder: Path) -> None:
    record = {**read_plan(folder), "preprocessing": {"size": 32, "mean": [0.5, 0.5], "std": None}}
    assert "preprocessing size 32; mean [0.5, 0.5]" in sections_of(page_of(record))["made"]


def test_a_plan_without_a_report_is_the_same_twice(result: Result) -> None:
    first, second = (json.dumps(plan_record(result)) for _ in range(2))
    assert first == second
    assert "date" not in plan_record(result)["report"]["made"]


def test_a_regression_has_an_error_instead_of_agreement(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    result = interpress.compress(model, torch.randn(200, 6), flops=0.5)
    result.report(tmp_path / "page.html", examples=True)
    words = sections_of((tmp_path / "page.html").read_text())
    assert result.agreement is not None
    assert result.agreement.output_error is not None
    error = f"{100 * result.agreement.output_error:.1f} %"
    assert f"The outputs differ by {error} of their standard deviation" in words["verdict"]
    assert "examples" not in words


def test_what_is_left_whole_for_want_of_examples_has_that_reason(folder: Path) -> None:
    record = read_plan(folder)
    first, second, *_ = record["plan"]
    for row in (first, second):
        row["after"] = row["before"]
    record["report"]["untrusted"] = {first["name"]: "30 rows for 64 columns"}
    words = sections_of(page_of(record))
    few = f"because the examples say too little (30 rows for 64 columns): {first['name']}."
    assert f"1 space could shrink and stayed whole, {few}" in words["verdict"]
    cheap = f"because channels elsewhere cost less to remove: {second['name']}."
    assert f"1 space could shrink and stayed whole, {cheap}" in words["verdict"]
    assert f"say too little about them: {first['name']} (30 rows" in words["frozen"]


def test_spaces_that_are_frozen_for_other_reasons_are_not_called_outputs(folder: Path) -> None:
    record = read_plan(folder)
    group = record["report"]["frozen"][0]
    record["report"]["frozen"].append({**group, "family": "excluded", "spaces": ["stem"]})
    top = sections_of(page_of(record))["verdict"]
    assert "Every layer can lose inputs or outputs. 2 spaces are frozen" in top


def test_few_examples_are_recorded_with_the_spaces_that_they_leave_whole() -> None:
    model, example = build("lenet")
    result = interpress.compress(model, example[:1], flops=0.8, progress=False)
    left = [name for name in result.orders.untrusted if name not in result.network.plan.kept]
    assert left
    record = plan_record(result)["report"]["untrusted"]
    assert record == {name: result.orders.untrusted[name] for name in left}


class Language(nn.Module):
    """Predicts the next token from the running mean of embeddings; 9,000 tokens are known."""

    def __init__(self, tokens: int = 9_000) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, 8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.head = nn.Linear(8, tokens)

    def forward(self, tokens: Tensor) -> Tensor:  # (batch, length)
        mean = self.embed(tokens).cumsum(1) / torch.arange(1, tokens.shape[1] + 1)[:, None]
        return self.head(self.down(self.up(mean).relu()))


class Words:
    """A tokenizer that writes a token as a word."""

    def decode(self, tokens: list[int]) -> str:
        return " ".join(f"word{token}" for token in tokens)


def test_a_language_model_shows_tokens_in_context_and_no_row_per_token(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = torch.randint(0, 9_000, (60, 12))
    method = Method(selection="random", refit=False)
    result = interpress.compress(Language(), data, flops=0.9995, method=method)
    result.report(tmp_path / "page.html", examples=True, tokenizer=Words())
    text = (tmp_path / "page.html").read_text()
    assert len(text) < 200_000
    words = sections_of(text)
    assert "Perplexity" in words["verdict"]
    assert re.search(r"… word\d+ .* before word\d+ \(", words["examples"])
    assert 0 < text.count("<blockquote>") <= 24
    result.report(tmp_path / "numbers.html", examples=True)
    assert "word" not in sections_of((tmp_path / "numbers.html").read_text())["examples"]


def test_attention_heads_are_not_counted_as_channels(folder: Path) -> None:
    record = copy.deepcopy(read_plan(folder))
    others = Facts(record)
    assert others.heads is None
    row = record["plan"][0]
    for name, before, after in (
        ("a.k_proj:heads", 3, 2), ("a.q_proj:heads-per-group", 9, 4), ("b.v_proj:heads", 8, 5),
    ):  # fmt: skip
        record["plan"].append({**row, "name": name, "before": before, "after": after})
    facts = Facts(record)
    assert facts.channels == others.channels
    assert facts.heads == (17, 9)  # those of the groups of `a` are its heads per group
    assert "and 9 of 17 attention heads remain" in sections_of(page_of(record))["verdict"]

"""The baselines of language models do what they say; the benchmark runs end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks.language import command, speed, trained
from benchmarks.language.baselines import flap, layers, magnitude, nystroem, obs, wanda
from benchmarks.language.neurons import Neurons, measure_neurons
from tests.pretrained.models import build, texts

import interpress
from interpress.extend import Cut, prove
from interpress.surgery.weights import shrunk_copy


@pytest.fixture(scope="module")
def neurons() -> list[Neurons]:
    spaces = interpress.find_spaces(build("llama"), texts(4), progress=False)
    return measure_neurons(spaces, [texts(8), texts(8, seed=1)])


def test_the_neurons_of_every_mlp_are_measured(neurons: list[Neurons]) -> None:
    assert [n.weight for n in neurons] == [
        f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1)
    ]
    for one in neurons:
        assert one.U.shape == (80, 48)
        assert len(one.producers) == 2  # gate and up
        assert torch.linalg.eigvalsh(one.G)[0] > -1e-9


def test_scores_are_those_of_the_definitions(neurons: list[Neurons]) -> None:
    one = neurons[0]
    size = one.G.diagonal().sqrt()
    expected = (one.U.abs().double() * size[:, None]).sum(1).topk(20).indices.sort().values
    assert torch.equal(wanda.choose(one, 20).kept, expected)
    rows = [weight.norm(dim=1) for weight in one.producers]
    assert torch.equal(
        magnitude.choose(one, 20).kept, (rows[0] * rows[1]).topk(20).indices.sort().values
    )
    choice = flap.choose(one, 20)
    dropped = [i for i in range(80) if i not in choice.kept.tolist()]
    assert choice.bias is not None
    assert torch.allclose(choice.bias, one.mean[dropped] @ one.U[dropped].double())


@pytest.mark.parametrize("choose", [nystroem.choose, obs.choose])
def test_corrections_are_least_squares_and_can_be_cut(choose, neurons) -> None:  # type: ignore[no-untyped-def]
    choice = choose(neurons[0], 30)
    G, kept, T = neurons[0].G, choice.kept, choice.T
    assert torch.allclose(G[kept][:, kept] @ T, G[kept], atol=1e-4 * float(G.diagonal().mean()))
    spaces = interpress.find_spaces(build("llama"), texts(4), progress=False)
    cut = Cut(spaces, {neurons[0].space: kept}, {neurons[0].tap: T})
    assert prove(spaces, cut, shrunk_copy(cut))


def test_obs_loses_less_than_magnitude(neurons: list[Neurons]) -> None:
    def error(kept: torch.Tensor) -> float:
        one = neurons[0]
        T = torch.linalg.solve(one.G[kept][:, kept], one.G[kept])
        E = torch.eye(80, dtype=torch.float64)
        E[:, :] -= torch.zeros(80, 80, dtype=torch.float64).index_copy(0, kept, T)
        return float((one.U.double().T @ E.T @ one.G @ E @ one.U.double()).trace())

    assert error(obs.choose(neurons[0], 30).kept) < error(magnitude.choose(neurons[0], 30).kept)


def test_the_least_influential_layer_is_dropped() -> None:
    model = build("llama")
    influence = layers.influences(model, [texts(4)])
    smaller = layers.without_layers(model, influence, 1)
    kept = int(influence[1] > influence[0])
    assert len(layers.layer_list(smaller)) == 1
    expected = layers.layer_list(model)[kept].mlp.down_proj.weight
    assert torch.equal(layers.layer_list(smaller)[0].mlp.down_proj.weight, expected)
    assert len(layers.layer_list(model)) == 2


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
def test_the_benchmark_measures_every_method_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "load_model", lambda path: (build("llama"), None))
    monkeypatch.setattr(command, "windows", lambda tokenizer, path, count, length: texts(count))
    words = ["tiny", "--calibrate", "a.txt", "--judge", "b.txt", "--budgets", "0.8"]
    words += ["--sequences", "40", "--windows", "4", "--out", str(tmp_path / "rows.json")]
    command.main(words)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["method"] for row in rows] == list(command.METHODS)
    for row in rows:
        assert row["left"] <= 0.8 + 1e-9
        assert row["perplexity"][1] > 1
    capsys.readouterr()
    command.main(words)  # nothing is measured again
    printed = capsys.readouterr().out
    assert "of the FLOPs" not in printed.splitlines()[0]
    assert "| preserve |" in printed


def test_small_networks_are_trained_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    words = ["--calibrate", str(text), "--judge", str(text), "--minutes", "0.01", "--length", "16"]
    trained.main([*words, "--sequences", "40", "--judged", "8", "--budgets", "0.8"])
    lines = capsys.readouterr().out.splitlines()
    for name in ("GPT-2", "OPT", "Qwen3"):
        assert any(line.startswith(f"| {name} | 0.8 |") for line in lines)


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
def test_speed_is_measured_for_every_batch_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "load_model", lambda path: (build("llama"), None))
    monkeypatch.setattr(speed, "windows", lambda tokenizer, path, count, length: texts(count))
    words = ["tiny", "--calibrate", "a.txt", "--round-to", "8", "--batches", "1", "2"]
    speed.main([*words, "--prompt", "5", "--tokens", "2", "--sequences", "40"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines if line.startswith("| 0.")] == ["1", "2"]


def test_the_documented_table_is_that_of_the_result_file() -> None:
    rows = json.loads(command.RESULTS.read_text())
    text = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text()
    assert command.results_table(rows).strip() in text

"""The commands do what their help says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import Shell, picture, small

import interpress

MODEL = ("nets.py:small", "--weights", "w.safetensors")


def test_inspect_says_what_can_shrink(shell: Shell) -> None:
    assert shell("inspect", *MODEL, "--shape", "3,8,8") == 0
    assert "it is an output of" in shell.out
    assert max(map(len, shell.out.splitlines())) <= 80
    assert shell("inspect", *MODEL, "--data", "photos", "--json") == 0
    found = json.loads(shell.out)
    assert [space["size"] for space in found["spaces"]] == [16, 24, 4]
    assert found["spaces"][2]["frozen"]


def test_compress_writes_a_folder_that_loads(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--data", "x.npy", "--flops", "0.5", "--out", "half") == 0
    assert sorted(path.name for path in Path("half").iterdir()) == [
        "plan.json", "report.html", "weights.safetensors",
    ]  # fmt: skip
    assert "half/report.html" in shell.out
    assert max(map(len, shell.out.splitlines())) <= 80
    smaller = interpress.load("half", small())
    assert smaller(torch.randn(2, 3, 8, 8)).shape == (2, 4)


def test_compress_then_evaluate_gives_the_same_agreement_as_python(shell: Shell) -> None:
    command = ("compress", *MODEL, "--data", "x.npz", "--params", "0.6", "--out", "p", "--json")
    assert shell(*command, "--evaluation", "x.safetensors") == 0
    said = json.loads(shell.out)
    assert said["params"] <= 0.6
    assert shell("evaluate", *MODEL, "--data", "x.npz", "--compressed", "p", "--json") == 0
    found = json.loads(shell.out)
    images = torch.from_numpy(np.load("x.npy"))
    model = small().eval()
    whole = interpress.agreement(model, interpress.load("p", model), images)
    assert found["agreement"] == pytest.approx(float(whole))
    assert found["accuracy"][0] == 1.0  # labelled by the model itself
    assert shell("evaluate", *MODEL, "--data", "x.npz", "--compressed", "p") == 0
    assert "agreement" in shell.out


@pytest.mark.parametrize(
    "data",
    [
        ("x.npy",), ("x.npz",), ("x.safetensors",), ("photos",), ("classes", "--size", "8"),
        ("x.parquet", "--preset", "half"), ("photos", "--mean", "0.4", "--std", "0.2"),
        ("photos", "--size", "12", "--limit", "100", "--batch", "32"),
    ],
    ids=lambda data: "-".join(data).replace("--", ""),
)  # fmt: skip
def test_every_kind_of_data(shell: Shell, data: tuple[str, ...]) -> None:
    command = ("compress", *MODEL, "--data", *data, "--width", "0.5", "--out", "out")
    assert shell(*command, "--method", "constant-id") == 0, shell.err


def test_several_arrays_are_the_keyword_inputs_of_the_forward(shell: Shell) -> None:
    images = np.load("x.npy")
    scale = np.linspace(1, 2, len(images), dtype=np.float32)
    np.savez("two.npz", x=images, scale=scale, label=np.arange(len(images)) % 4)
    command = ("compress", "nets.py:scaled", "--width", "0.5", "--method", "constant-id")
    assert shell(*command, "--data", "two.npz", "--out", "out") == 0, shell.err
    plan = json.loads(Path("out/plan.json").read_text())
    assert plan["preprocessing"]["shape"] == {"x": [3, 8, 8], "scale": []}
    evaluate = ("evaluate", "nets.py:scaled", "--data", "two.npz", "--compressed", "out")
    assert shell(*evaluate) == 0, shell.err
    assert "accuracy" in shell.out
    np.savez("wrong.npz", x=images, scales=scale)
    assert shell(*command, "--data", "wrong.npz", "--out", "b") == 2
    assert "'scales', but the forward of Scaled takes x, scale, shift; rename or" in shell.err
    np.savez("less.npz", x=images, shift=scale)
    assert shell(*command, "--data", "less.npz", "--out", "b") == 2
    assert "less.npz has no array 'scale', but the forward of Scaled takes" in shell.err


def test_gray_images_and_model_arguments(shell: Shell) -> None:
    model = ("nets.py:small", "--model-arg", "channels=1", "--model-arg", "classes=3")
    assert (
        shell("compress", *model, "--data", "photos", "--gray", "--flops", "0.5", "--out", "g") == 0
    )


def test_evaluate_compares_with_another_network(shell: Shell) -> None:
    command = ("evaluate", *MODEL, "--data", "x.npy", "--other", "nets.py:small")
    assert shell(*command, "--other-weights", "w.pt") == 0
    assert shell.out.startswith("100.00% of 120 decisions")
    assert shell("evaluate", *MODEL, "--data", "x.npy", "--compressed", "a", "--other", "b") == 2
    assert "one of --compressed FOLDER and --other MODEL" in shell.err


def _written_method(shell: Shell, *options: str) -> dict[str, object]:
    command = ("compress", *MODEL, "--data", "x.npy", "--out", "out", "--force", *options)
    assert shell(*command) == 0, shell.err
    return json.loads(Path("out/plan.json").read_text())["method"]  # type: ignore[no-any-return]


def test_compress_changes_parts_of_a_method(shell: Shell) -> None:
    method = _written_method(
        shell, "--flops", "0.5", "--selection", "l1", "--allocation", "constant", "--no-refit"
    )
    assert (method["selection"], method["allocation"]) == ("l1", "constant")
    assert method["refit"] is False
    method = _written_method(shell, "--flops", "0.5", "--method", "iterative-id", "--refit")
    assert (method["selection"], method["allocation"]) == ("pivoting", "iterative")
    assert method["refit"] is True


def test_an_error_budget_turns_the_refit_off_unless_asked(shell: Shell) -> None:
    assert _written_method(shell, "--error", "0.5")["refit"] is False
    assert _written_method(shell, "--error", "0.5", "--selection", "l2")["refit"] is False
    assert _written_method(shell, "--error", "0.5", "--refit")["refit"] is True


def test_exclude_and_limits_reach_the_library(shell: Shell) -> None:
    command = ("compress", *MODEL, "--data", "x.npy", "--flops", "0.6", "--out", "out", "--json")
    assert shell(*command, "--exclude", "0", "--round-to", "4", "--min-width", "8") == 0
    widths = json.loads(shell.out)["widths"]
    assert all(width % 4 == 0 and width >= 8 for width in widths.values())
    model, data = small().eval(), torch.from_numpy(np.load("x.npy")).split(100)
    result = interpress.compress(
        model, list(data), flops=0.6, exclude=["0"], round_to=4, min_width=8
    )
    assert widths == dict(result.widths)


TWO_HEADS = ("nets.py:two_heads", "--data", "x.npy")


def test_output_and_kind_say_what_decides(shell: Shell) -> None:
    command = ("compress", *TWO_HEADS, "--flops", "0.6", "--out", "two", "--json")
    assert shell(*command) == 0, shell.err
    measured = json.loads(shell.out)["agreement"]
    assert measured["output"] == "classes"
    assert [other["name"] for other in measured["others"]] == ["box"]
    evaluate = ("evaluate", *TWO_HEADS, "--compressed", "two")
    assert shell(*evaluate) == 0, shell.err
    assert "Judged by the output 'classes'; choose another with output= (--output" in shell.out
    assert "(1 is what predicting the mean gives): box 0." in shell.out
    assert shell(*evaluate, "--output", "box", "--kind", "regression") == 0, shell.err
    assert shell.out.startswith("output error 0.")
    assert "(1 is what predicting the mean gives)" in shell.out
    curve = ("curve", *TWO_HEADS, "--points", "2", "--output", "box", "--json")
    assert shell(*curve) == 0, shell.err
    evaluation = ("--evaluation", "x.npy", "--output", "box", "--kind", "regression", "--force")
    assert shell(*command, *evaluation) == 0, shell.err
    assert json.loads(Path("two/plan.json").read_text())["asked"]["output"] == "box"


def test_an_output_that_does_not_exist_is_named_with_those_that_do(shell: Shell) -> None:
    command = ("compress", *TWO_HEADS, "--flops", "0.6", "--out", "two", "--output")
    assert shell(*command, "masks") == 2
    assert "--output masks is no output of the model; its outputs are 'box'" in shell.err
    assert shell(*command, "0") == 2
    assert "--output 0 is no output of the model" in shell.err
    assert shell("compress", *TWO_HEADS, "--flops", "0.6", "--out", "two", "--kind", "x") == 2
    assert "--kind x; choose one of auto" in shell.err
    same = ("evaluate", "nets.py:small", "--data", "x.npy", "--other", "nets.py:small")
    assert shell(*same, "--output", "-1") == 0, shell.err


def test_a_limit_of_zero_means_all_examples(shell: Shell) -> None:
    command = ("compress", *MODEL, "--data", "x.npy", "--flops", "0.5", "--out", "out", "--json")
    assert shell(*command, "--limit", "0") == 0, shell.err
    assert json.loads(shell.out)["agreement"]["examples"] == 120 // 5
    evaluate = ("evaluate", *MODEL, "--data", "x.npy", "--compressed", "out", "--json")
    assert shell(*evaluate, "--limit", "0") == 0, shell.err
    assert json.loads(shell.out)["examples"] == 120
    assert shell("curve", *MODEL, "--data", "x.npy", "--points", "2", "--limit", "0") == 0
    assert shell("inspect", *MODEL, "--data", "x.npy", "--limit", "0") == 2
    assert "No such option: --limit" in shell.err


def test_labels_that_are_text_are_ignored_with_a_warning(shell: Shell) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    cells = [{"bytes": picture(index)} for index in range(60)]
    parquet.write_table(pa.table({"img": cells, "label": ["cat", "dog"] * 30}), "text.parquet")
    command = ("compress", *MODEL, "--data", "text.parquet", "--flops", "0.5", "--out", "out")
    assert shell(*command) == 0, shell.err
    assert "label" not in shell.err  # compress does not use labels
    assert shell("evaluate", *MODEL, "--data", "text.parquet", "--compressed", "out") == 0
    assert "warning: text.parquet: column 'label' holds string instead of whole" in shell.err
    assert "accuracy" not in shell.out
    assert shell(*command, "--force", "--evaluation", "text.parquet") == 0
    assert "column 'label' holds string" in shell.err


def test_curve_predicts_and_measures(shell: Shell) -> None:
    assert shell("curve", *MODEL, "--data", "x.npy", "--points", "4", "--measure", "--json") == 0
    points = json.loads(shell.out)["points"]
    flops = [point["flops"] for point in points]
    assert flops == sorted(flops, reverse=True)
    assert flops[0] == 1.0
    assert points[0]["agreement"]["agreement"] == 1.0
    assert shell("curve", *MODEL, "--data", "x.npy", "--points", "3") == 0
    assert "predicted loss" in shell.out


def test_curve_takes_parts_of_a_method(shell: Shell) -> None:
    command = ("curve", *MODEL, "--data", "x.npy", "--points", "3", "--json")
    assert shell(*command, "--method", "constant-id") == 0
    constant = json.loads(shell.out)
    assert constant["method"] == "constant-id"
    parts = ("--selection", "pivoting", "--allocation", "constant")
    assert shell(*command, *parts) == 0
    assert json.loads(shell.out)["points"] == constant["points"]


def test_what_a_model_prints_stays_out_of_json(shell: Shell) -> None:
    assert shell("curve", "nets.py:prints", "--data", "x.npy", "--points", "2", "--json") == 0
    assert json.loads(shell.out)["points"]
    assert "hello" in shell.err
    assert "no --weights" in shell.err


def test_demo_prints_json(shell: Shell) -> None:
    assert shell("demo", "--out", "first", "--json") == 0
    found = json.loads(shell.out)
    rows = {row["network"]: row for row in found["networks"]}
    assert rows["original"]["agreement"] == 1.0
    assert Path(found["report"]).is_file()


def test_a_second_run_refuses_and_force_replaces(shell: Shell) -> None:
    command = ("compress", *MODEL, "--data", "x.npy", "--width", "0.5", "--out", "out")
    assert shell(*command) == 0
    before = Path("out/plan.json").read_bytes()
    assert shell(*command) == 2
    assert "--force" in shell.err
    assert Path("out/plan.json").read_bytes() == before
    assert shell(*command, "--force") == 0


def test_an_interrupt_leaves_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = sorted(path.name for path in Path().iterdir())
    functions = (
        "interpress.data.calibration_set.take",
        "interpress.network.build.refit",
        "interpress.files.folder.move_into_place",
    )
    for function in functions:
        with monkeypatch.context() as patched:
            patched.setattr(function, interrupted)
            status = shell("compress", *MODEL, "--data", "x.npy", "--flops", "0.5", "--out", "out")
        assert status == 130
        assert shell.err.strip() == "error: interrupted; nothing was written"
        assert sorted(path.name for path in Path().iterdir()) == before


def save_bert(folder: str, *, with_tokenizer: bool = True) -> None:
    """Save a small encoder that takes 16 tokens, and a tokenizer of the words w0 to w29."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i + 2 for i in range(30)}}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]"
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    if with_tokenizer:
        fast.save_pretrained(folder)


def test_a_hugging_face_folder_and_text(shell: Shell) -> None:
    save_bert("bert")
    lines = [" ".join(f"w{(7 * i + j * j) % 30}" for j in range(5 + i % 7)) for i in range(90)]
    Path("lines.txt").write_text("\n".join(lines))
    command = ("compress", "bert", "--data", "lines.txt", "--length", "12", "--flops", "0.8")
    assert shell(*command, "--out", "out") == 0, shell.err
    again = ("evaluate", "bert", "--data", "lines.txt", "--length", "12", "--compressed", "out")
    assert shell(*again) == 0, shell.err


def test_a_folder_without_a_tokenizer_is_refused(shell: Shell) -> None:
    save_bert("bert", with_tokenizer=False)
    Path("lines.txt").write_text("\n".join(f"w{i} w{i + 1}" for i in range(20)))
    command = ("inspect", "bert", "--data", "lines.txt", "--length", "12")
    assert shell(*command) == 2
    assert "bert holds no tokenizer: none of tokenizer.json" in shell.err


def test_unknown_words_are_warned_about_and_known_ones_are_not(shell: Shell) -> None:
    save_bert("bert")
    command = ("inspect", "bert", "--data", "lines.txt", "--length", "12")
    Path("lines.txt").write_text("\n".join(f"w{i} w{i + 1}" for i in range(20)))
    assert shell(*command) == 0, shell.err
    assert "unknown token" not in shell.err
    Path("lines.txt").write_text("\n".join(f"other words w{i}" for i in range(20)))
    assert shell(*command) == 0, shell.err
    assert "67% of the tokens of lines.txt are the unknown token [UNK]" in shell.err


def test_texts_that_are_too_long_name_the_length(shell: Shell) -> None:
    save_bert("bert")
    Path("lines.txt").write_text("\n".join(f"w{i} w{i + 1}" for i in range(20)))
    assert shell("inspect", "bert", "--data", "lines.txt") == 2
    assert "(4, 128) int64" in shell.err
    assert "with --length" in shell.err

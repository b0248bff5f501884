from __future__ import annotations

import json
import re
from pathlib import Path

import numpy
import torch
from tests.cli.conftest import Shell, small

import interpress

MODEL = ("nets.py:small", "--weights", "w.safetensors", "--data", "x.npy")


def test_distill_writes_a_folder_that_loads(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--flops", "0.3", "--out", "small") == 0
    asked = ("--steps", "40", "--out", "closer", "--json")
    assert shell("distill", "small", *MODEL, *asked) == 0
    record = json.loads(shell.out)
    assert record["distilled"]["steps"] == 40
    assert record["distilled"]["after"] <= record["distilled"]["before"]
    plan = json.loads(Path("closer/plan.json").read_text())
    origin = plan["distilled"].pop("origin")
    assert plan["distilled"] == record["distilled"]
    assert origin["call"].startswith("interpress distill small nets.py:small")
    assert origin["examples"] == 120
    assert plan["agreement"]["agreement"] == record["agreement"]["agreement"]
    model = small()
    before, after = (interpress.load(folder, model) for folder in ("small", "closer"))
    changed = [
        not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert any(changed) == record["distilled"]["kept"]
    assert shell("evaluate", *MODEL, "--compressed", "closer", "--json") == 0
    page = Path("closer/report.html").read_text()
    digests = [
        json.loads(Path(f"{folder}/plan.json").read_text())["report"]["digests"]
        for folder in ("small", "closer")
    ]
    assert digests[0]["original"] == digests[1]["original"]
    assert digests[1]["smaller"] in page
    assert (digests[0]["smaller"] != digests[1]["smaller"]) == record["distilled"]["kept"]
    assert "for 40 steps, without labels" in page or not record["distilled"]["kept"]
    assert origin["sha256"] in page
    assert "held out from the data of the distillation" in re.sub("<[^>]*>", "", page)


def test_compress_distills_if_asked(shell: Shell) -> None:
    asked = ("--distill", "--minutes", "0.02", "--flops", "0.3", "--out", "out")
    assert shell("compress", *MODEL, *asked) == 0
    assert "istil" in shell.out
    assert json.loads(Path("out/plan.json").read_text())["distilled"]["steps"] > 0


def test_minutes_without_distill_are_refused(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--flops", "0.5", "--minutes", "1", "--out", "out") == 2
    assert "--minutes" in shell.err
    assert "--distill" in shell.err


def test_an_existing_folder_is_not_replaced(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--flops", "0.5", "--out", "out") == 0
    assert shell("distill", "out", *MODEL, "--steps", "2", "--out", "out") == 2
    assert "--force" in shell.err
    assert shell("distill", "out", *MODEL, "--steps", "2", "--out", "out", "--force") == 0


def test_bad_numbers_are_named(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--flops", "0.5", "--out", "out") == 0
    assert shell("distill", "out", *MODEL, "--steps", "0", "--out", "new") == 2
    assert "--steps 0" in shell.err


def test_the_page_of_a_distilled_network_says_what_evaluation_data_showed(shell: Shell) -> None:
    numpy.save("other.npy", numpy.load("x.npy")[::-1] * 1.01)
    assert shell("compress", *MODEL, "--flops", "0.8", "--out", "small") == 0
    asked = ("--steps", "5", "--evaluation", "other.npy", "--out", "closer")
    assert shell("distill", "small", *MODEL, *asked) == 0
    assert "on evaluation data: " in shell.out
    assert "Verdict: " in shell.out
    plan = json.loads(Path("closer/plan.json").read_text())
    assert plan["evaluation"]["examples"] == 120
    assert plan["evaluation"]["in_common"] == 0
    page = Path("closer/report.html").read_text()
    assert "no evaluation example was used to calibrate or distil it" in page
    assert "Before the distillation, the same examples gave:" in page


def test_evaluation_on_the_data_that_made_the_network_is_noticed(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--flops", "0.8", "--out", "small") == 0
    assert shell("distill", "small", *MODEL, "--steps", "5", "--out", "closer") == 0
    assert shell("evaluate", *MODEL, "--compressed", "small") == 0
    assert "120 of the 120 examples calibrated or distilled small" in " ".join(shell.err.split())
    x = numpy.load("x.npy")
    numpy.save("other.npy", numpy.concatenate([x[:7], x * 1.01]))
    other = (*MODEL[:-1], "other.npy")
    assert shell("evaluate", *other, "--compressed", "closer") == 0
    assert "7 of the 127 examples" in " ".join(shell.err.split())
    numpy.save("other.npy", x * 1.01)
    assert shell("evaluate", *other, "--compressed", "closer") == 0
    assert "none of the 120 examples calibrated or distilled closer" in shell.err


def test_examples_that_calibrated_count_after_a_distillation_on_others(shell: Shell) -> None:
    x = numpy.load("x.npy")
    numpy.save("later.npy", x * 1.01)
    numpy.save("judged.npy", numpy.concatenate([x[:50], x * 1.01, x * 1.02]))
    assert shell("compress", *MODEL, "--flops", "0.8", "--out", "small") == 0
    asked = ("--data", "later.npy", "--steps", "5", "--evaluation", "judged.npy", "--out", "closer")
    assert shell("distill", "small", *MODEL[:-2], *asked) == 0
    plan = json.loads(Path("closer/plan.json").read_text())
    assert plan["evaluation"]["in_common"] == 170
    words = " ".join(shell.out.split())
    assert "170 of the 290 evaluation examples were used to calibrate or distil it" in words

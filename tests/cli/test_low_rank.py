"""`interpress compress --lowrank`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tests.cli.conftest import Shell, small

import interpress

MODEL = ("nets.py:small", "--weights", "w.safetensors", "--data", "x.npy")


def test_a_folder_with_thin_layers_loads(shell: Shell) -> None:
    asked = ("--flops", "0.3", "--lowrank", "--out", "out", "--json")
    assert shell("compress", *MODEL, *asked) == 0
    record = json.loads(shell.out)
    assert record["flops"] <= 0.3
    plan = json.loads(Path("out/plan.json").read_text())
    assert plan["low_rank"]["ranks"] == record["ranks"]
    loaded = interpress.load("out", small())
    assert sum(p.numel() for p in loaded.parameters()) == plan["parameters"][1]
    assert shell("evaluate", *MODEL, "--compressed", "out", "--json") == 0
    assert shell("distill", "out", *MODEL, "--steps", "2", "--out", "closer") == 0
    again = interpress.load("closer", small())
    assert [p.shape for p in again.parameters()] == [p.shape for p in loaded.parameters()]
    assert torch.equal(loaded(torch.zeros(1, 3, 8, 8)), loaded(torch.zeros(1, 3, 8, 8)))


def test_the_summary_says_what_low_rank_did(shell: Shell) -> None:
    assert shell("compress", *MODEL, "--params", "0.4", "--lowrank", "--out", "out") == 0
    assert "Low rank:" in shell.out


def test_what_does_not_go_together_is_refused(shell: Shell) -> None:
    asked = ("--agreement", "0.9", "--lowrank", "--out", "out")
    assert shell("compress", *MODEL, *asked) == 2
    assert "--lowrank" in shell.err
    assert "--flops or --params" in shell.err
    asked = ("--flops", "0.5", "--lowrank", "--same-widths", "--out", "out")
    assert shell("compress", *MODEL, *asked) == 2
    assert "--same-widths" in shell.err

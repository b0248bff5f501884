"""Bad input: one clear line, exit code 2, no traceback, no files left behind."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import Shell, picture, small

MODEL = ("nets.py:small", "--weights", "w.safetensors")
GOOD = ("compress", *MODEL, "--data", "x.npy", "--flops", "0.5", "--out", "out")


def changed(**options: str | None) -> tuple[str, ...]:
    """Return the good command with some options replaced, added or dropped."""
    words = list(GOOD)
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if flag in words:
            position = words.index(flag)
            del words[position : position + 2]
        if value is not None:
            words += [flag, value] if value else [flag]
    return tuple(words)


def model(name: str, *more: str) -> tuple[str, ...]:
    return ("compress", name, *more, "--data", "x.npy", "--flops", "0.5", "--out", "out")


class _Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, ("touch owned",)


def _weights(**replaced: torch.Tensor) -> None:
    state = {name: t.contiguous() for name, t in small().state_dict().items()} | replaced
    save_file(state, "bad.safetensors")


def _folder(count: int = 0, **files: bytes) -> None:
    Path("bad").mkdir()
    for index in range(count):
        (Path("bad") / f"{index}.png").write_bytes(picture(index))
    for name, data in files.items():
        (Path("bad") / f"{name}.png").write_bytes(data)


def _parquet(**columns: list[object]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table(columns), "bad.parquet")


def _old() -> None:
    Path("old").mkdir()
    Path("old/plan.json").write_text("{}")


def _nothing() -> None:
    """No preparation."""


CASES: dict[str, tuple[tuple[str, ...], Callable[[], object], str]] = {
    # the model
    "no colon": (model("nets.py"), _nothing, "give nets.py:FUNCTION, of small"),
    "missing file": (model("nowhere.py:small"), _nothing, "nowhere.py is not a file"),
    "no model of transformers": (
        changed(save_pretrained="hf"), _nothing, "--save-pretrained is for models of transformers"),
    "missing module": (model("no.such.module:small"), _nothing, "cannot be imported"),
    "missing function": (model("nets.py:large"), _nothing, "no 'large'; it has"),
    "not a function": (model("nets.py:NUMBER"), _nothing, "not a function but of type int"),
    "factory raises": (model("nets.py:broken"), _nothing, "no such thing"),
    "not a network": (model("nets.py:not_a_network"), _nothing, "of type int; it must return"),
    "syntax error": (
        model("wrong.py:small"), lambda: Path("wrong.py").write_text("def :"), "SyntaxError"),
    "bad model argument": (model("nets.py:small", "--model-arg", "classes"), _nothing, "KEY=VALUE"),
    "unknown model argument": (
        model("nets.py:small", "--model-arg", "depth=3"), _nothing, "depth"),
    "folder without config": (model("empty"), lambda: Path("empty").mkdir(), "no config.json"),
    "garbled config": (
        model("hf"), lambda: (Path("hf").mkdir(), Path("hf/config.json").write_text("{")),
        "cannot be loaded"),
    "nothing can shrink": (model("nets.py:fixed"), _nothing, "nothing in this model can shrink"),
    "NaN outputs": (model("nets.py:nan"), _nothing, "NaN"),
    "factory exits": (model("nets.py:exits"), _nothing, "SystemExit"),
    "empty model": (model(""), _nothing, "MODEL is empty"),
    "no such device": (changed(device="cuda:77"), _nothing, "--device cuda:77"),
    "nonsense device": (changed(device="toaster"), _nothing, "--device toaster"),
    # weights
    "missing weights": (changed(weights="no.safetensors"), _nothing, "is not a file"),
    "garbled safetensors": (
        changed(weights="bad.safetensors"),
        lambda: Path("bad.safetensors").write_bytes(b"nonsense"), "cannot be read"),
    "truncated safetensors": (
        changed(weights="bad.safetensors"),
        lambda: Path("bad.safetensors").write_bytes(Path("w.safetensors").read_bytes()[:-50]),
        "cannot be read"),
    "unknown kind of weights": (changed(weights="nets.py"), _nothing, "weights are .safetensors"),
    "pickle with code": (
        changed(weights="evil.pt"),
        lambda: Path("evil.pt").write_bytes(pickle.dumps(_Evil())), "could run code"),
    "pickled network": (
        changed(weights="whole.pt"), lambda: torch.save(small(), "whole.pt"), "could run code"),
    "not a state dict": (
        changed(weights="list.pt"), lambda: torch.save([torch.ones(2)], "list.pt"),
        "does not hold a state dict"),
    "other network's weights": (
        changed(weights="bad.safetensors"),
        lambda: save_file({"a.weight": torch.ones(2, 2)}, "bad.safetensors"), "lacks '0.weight'"),
    "wrong shape": (
        changed(weights="bad.safetensors"),
        lambda: _weights(**{"7.weight": torch.ones(5, 24)}), "has shape (5, 24)"),
    "NaN weights": (
        changed(weights="bad.safetensors"),
        lambda: _weights(**{"7.bias": torch.full((4,), torch.nan)}), "NaN or Inf"),
    # data
    "missing data": (changed(data="nowhere"), _nothing, "nowhere does not exist"),
    "unknown kind of data": (changed(data="nets.py"), _nothing, "a folder of images, or a file:"),
    "one image": (
        changed(data="one.png"), lambda: Path("one.png").write_bytes(picture(0)), "is one image"),
    "empty folder": (changed(data="bad"), _folder, "holds no examples"),
    "no image in it": (
        changed(data="bad"), lambda: _folder(2, broken=b"no image"), "not a readable"),
    "truncated image": (
        changed(data="bad"), lambda: _folder(2, broken=picture(0, 64)[:400]), "not a readable"),
    "mixed sizes": (
        changed(data="bad"), lambda: _folder(3, large=picture(9, 16)), "--size"),
    "wrong channels": (changed(data="photos", gray=""), _nothing, "channels"),
    "mean without std": (changed(data="photos", mean="0.5"), _nothing, "belong together"),
    "mean not a number": (
        changed(data="photos", mean="a,b,c", std="1"), _nothing, "--mean 'a,b,c'"),
    "two means": (changed(data="photos", mean="1,2", std="1"), _nothing, "takes 1 or 3 numbers"),
    "preset of another number of channels": (
        changed(data="photos", preset="cifar10", gray=""), _nothing, "1 number with --gray"),
    "zero std": (changed(data="photos", mean="0", std="0"), _nothing, "above 0"),
    "size of zero": (changed(data="photos", size="0"), _nothing, "--size 0"),
    "unknown preset": (changed(data="photos", preset="vogue"), _nothing, "--preset vogue"),
    "objects in npy": (
        changed(data="bad.npy"),
        lambda: np.save("bad.npy", np.array([{1: 2}], dtype=object), allow_pickle=True),
        "not a file of numeric arrays"),
    "garbled npz": (
        changed(data="bad.npz"), lambda: Path("bad.npz").write_bytes(b"PK\x03\x04nope"),
        "not a file of numeric arrays"),
    "one dim": (
        changed(data="bad.npy"), lambda: np.save("bad.npy", np.ones(9, np.float32)), "shape (9,)"),
    "bytes": (
        changed(data="bad.npy"), lambda: np.save("bad.npy", np.ones((9, 3, 8, 8), np.uint8)),
        "holds bytes"),
    "NaN in data": (
        changed(data="bad.npy"),
        lambda: np.save("bad.npy", np.full((60, 3, 8, 8), np.nan, np.float32)), "NaN or Inf"),
    "complex numbers": (
        changed(data="bad.npy"), lambda: np.save("bad.npy", np.ones((9, 3, 8, 8), np.complex64)),
        "complex"),
    "labels that are fractions": (
        changed(data="bad.npz"),
        lambda: np.savez("bad.npz", x=np.ones((9, 3), np.float32), label=np.ones(9)), "labels"),
    "images' option for arrays": (changed(preset="cifar10"), _nothing, "--preset prepares images"),
    "evaluation of the wrong shape": (
        changed(evaluation="bad.npy"),
        lambda: np.save("bad.npy", np.ones((9, 1, 8, 8), np.float32)),
        "bad.npy: Sequential does not run on an input of shape"),
    "several arrays": (
        changed(data="bad.npz"), lambda: np.savez("bad.npz", a=np.ones((2, 2)), b=np.ones((2, 2))),
        "--key"),
    "no such array": (changed(data="x.npz", key="pixels"), _nothing, "no 'pixels'"),
    "data of the wrong shape": (
        changed(data="bad.npy"), lambda: np.save("bad.npy", np.ones((60, 5), np.float32)), "5"),
    "garbled parquet": (
        changed(data="bad.parquet"), lambda: Path("bad.parquet").write_bytes(b"PAR1"),
        "not a readable Parquet"),
    "parquet without images": (
        changed(data="bad.parquet"), lambda: _parquet(a=[1, 2]), "no column of image bytes"),
    "parquet with an empty cell": (
        changed(data="bad.parquet"), lambda: _parquet(img=[picture(0), b""]), "no image bytes"),
    "gray images for a model of colours": (
        changed(data="photos", gray=""), _nothing,
        "with --size, --preset or --gray"),
    "text without a tokenizer": (
        changed(data="lines.txt"), lambda: Path("lines.txt").write_text("a\nb"), "--tokenizer"),
    "text in another encoding": (
        changed(data="lines.txt"), lambda: Path("lines.txt").write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    # the budget and other options
    "no budget": (changed(flops=None), _nothing, "budget"),
    "two budgets": (changed(params="0.5"), _nothing, "got --flops 0.5 and --params 0.5"),
    "budget above one": (changed(flops="1.5"), _nothing, "--flops 1.5 is out of range"),
    "budget not a number": (changed(flops="half"), _nothing, "--flops"),
    "budget out of reach": (changed(flops="0.00001"), _nothing, "--flops 1e-05 cannot be"),
    "unknown method": (changed(method="magic"), _nothing, "--method magic is not known"),
    "unknown selection": (changed(selection="magic"), _nothing, "--selection magic is not known"),
    "unknown allocation": (
        changed(allocation="magic"), _nothing, "--allocation magic is not known"),
    "zero round-to": (changed(round_to="0"), _nothing, "--round-to 0"),
    "zero length": (changed(length="0"), _nothing, "--length 0"),
    "negative limit": (changed(limit="-1"), _nothing, "--limit -1"),
    "unknown exclude": (changed(exclude="no.such.layer"), _nothing, "no.such.layer"),
    "zero batch": (changed(batch="0"), _nothing, "--batch 0"),
    "negative seed": (changed(seed="-1"), _nothing, "--seed -1"),
    "unknown flag": ((*GOOD, "--fast"), _nothing, "--fast"),
    "unknown command": (("squeeze",), _nothing, "squeeze"),
    "no output": (changed(out=None), _nothing, "--out"),
    "output is a file": (changed(out="x.npy"), _nothing, "is a file"),
    "output below a file": (changed(out="x.npy/out"), _nothing, "is a file"),
    "output holds something else": (
        changed(out="bad", force=""), lambda: _folder(1), "also holds"),
    "output not empty": (changed(out="old"), _old, "--force"),
    # the other commands
    "nothing to compare with": (
        ("evaluate", *MODEL, "--data", "x.npy"), _nothing, "--compressed"),
    "compressed is no folder": (
        ("evaluate", *MODEL, "--data", "x.npy", "--compressed", "nowhere"), _nothing, "nowhere"),
    "inspect what": (("inspect", *MODEL), _nothing, "--shape"),
    "shape that does not fit": (("inspect", *MODEL, "--shape", "5,8,8"), _nothing, "with --shape"),
    "shape of letters": (("inspect", *MODEL, "--shape", "a,b"), _nothing, "--shape 'a,b'"),
    "one point": (("curve", *MODEL, "--data", "x.npy", "--points", "1"), _nothing, "--points 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_one_clear_line(shell: Shell, case: str) -> None:
    command, prepare, expected = CASES[case]
    prepare()
    before = sorted(str(path) for path in Path().rglob("*"))
    status = shell(*command)
    assert status == 2, (status, shell.out, shell.err)
    lines = [line for line in shell.err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, shell.err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert "Traceback" not in shell.err + shell.out
    after = {path for path in map(str, Path().rglob("*")) if "__pycache__" not in path}
    assert after == {path for path in before if "__pycache__" not in path}
    assert not Path("owned").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("limit", ["1", "3"])
def test_a_few_examples_are_enough(shell: Shell, limit: str) -> None:
    assert shell(*changed(limit=limit)) == 0, shell.err
    assert Path("out").is_dir()


def test_there_are_more_than_fifty_kinds() -> None:
    assert len(CASES) > 50


@pytest.mark.parametrize("problem", [(28, "No space left on device"), (13, "Permission denied")])
def test_a_full_disk_and_no_permission(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, problem: tuple[int, str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(*problem)

    monkeypatch.setattr("interpress.storage.result_folder.os.replace", refused)
    before = sorted(path.name for path in Path().iterdir())
    assert shell(*GOOD) == 2
    assert problem[1] in shell.err
    assert "Traceback" not in shell.err
    assert sorted(path.name for path in Path().iterdir()) == before

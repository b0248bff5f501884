"""What a saved result remembers of its original."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from tests.digits import Trained

import interpress
from interpress import Result
from interpress.storage.architecture import digest_of, has_other_weights
from interpress.storage.result_folder import PLAN, read_plan


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "half"
    result.save(path)
    return path


def test_the_original_is_recognised(folder: Path, result: Result) -> None:
    record = read_plan(folder)
    assert record == json.loads((folder / PLAN).read_text())
    assert not has_other_weights(record, result.original)
    other = copy.deepcopy(result.original)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-3  # one number, hardly changed
    assert has_other_weights(record, other)


def test_weights_that_are_not_here_are_not_judged(folder: Path, digits: Trained) -> None:
    with torch.device("meta"):
        empty = copy.deepcopy(digits.model).to("meta")
    assert digest_of(empty) is None
    assert not has_other_weights(read_plan(folder), empty)
    assert not has_other_weights({"original": {"modules": {}}}, digits.model)  # of version 0.1.0


def test_load_warns_if_asked(folder: Path, result: Result) -> None:
    other = copy.deepcopy(result.original)
    with torch.no_grad():
        next(other.parameters()).mul_(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interpress.load(folder, other)
        interpress.load(folder, result.original, check_weights=True)
    with pytest.warns(UserWarning, match=r"other weights of .* load the weights that were comp"):
        interpress.load(folder, other, check_weights=True)

"""`device=`: the arithmetic happens on one device while the model stays where it is.

Without a GPU only the errors are tested here; `tests/graph/test_on_device.py` tests the placement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pipeline.test_streaming import IMAGES, TEXTS, llama, resnet
from torch import nn

import interpress
from interpress import ArgumentError
from interpress.pipeline.steps import elsewhere

CPU, META = torch.device("cpu"), torch.device("meta")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99", 3.5])
def test_a_device_that_cannot_compute_is_refused(device: Any) -> None:
    with pytest.raises(ArgumentError, match=r"device=.* cannot be used .*such as 'cuda:0'"):
        interpress.compress(nn.Linear(2, 2), IMAGES, flops=0.5, device=device)


def test_the_model_s_own_device_changes_nothing() -> None:
    plain = interpress.compress(resnet(), IMAGES, flops=0.6, progress=False)
    result = interpress.compress(resnet(), IMAGES, flops=0.6, device="cpu", progress=False)
    assert result.study.walk is None
    for one, other in zip(result.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_where_a_model_computes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert elsewhere(model, None) is None
    assert elsewhere(model, CPU) is None
    assert elsewhere(model, META) == META
    model[1].to(META)  # a model on several devices computes on one that is not the CPU
    assert elsewhere(model, None) == META
    assert elsewhere(model, CPU) == CPU


@needs_cuda
@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")
@pytest.mark.parametrize("name", ["llama", "resnet"])
def test_a_gpu_computes_for_a_model_on_the_cpu(name: str, tmp_path: Path) -> None:
    build, data = {"llama": (llama, TEXTS), "resnet": (resnet, IMAGES)}[name]
    expected = interpress.compress(build(), data, flops=0.6, progress=False)
    model = build()
    result = interpress.compress(
        model, data, flops=0.6, device="cuda", checkpoint=tmp_path / "c", progress=False
    )
    assert result.widths == expected.widths
    for network in (model, result.model):
        assert {p.device for p in network.parameters()} == {CPU}
    for one, other in zip(result.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    again = interpress.compress(
        model, data, flops=0.6, device="cuda", checkpoint=tmp_path / "c", progress=False
    )
    for one, other in zip(result.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)

"""A network with the published layout and size of YOLOv8n, from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.zoo.detectors import YOLOv8

from interpress import compress

pytestmark = pytest.mark.slow  # two minutes on one core


@pytest.mark.filterwarnings("ignore")
def test_half_of_yolov8n_runs_in_onnx_runtime(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model, images = YOLOv8().eval(), torch.rand(12, 3, 320, 320)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.16e6, rel=0.002)
    result = compress(model, images, flops=0.5, kind="regression")
    assert result.spaces.cost.shrinkable_share() > 0.95
    assert 0.49 < result.flops <= 0.5
    path = tmp_path / "half.onnx"
    free = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(result.model, (images[:2],), path, dynamo=True, dynamic_shapes=free)
    session = onnxruntime.InferenceSession(path)
    (actual,) = session.run(None, {session.get_inputs()[0].name: images[:3].numpy()})
    expected = result.model(images[:3]).detach().numpy()
    assert np.abs(actual - expected).max() < 1e-5 * np.abs(expected).max()

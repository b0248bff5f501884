"""How much memory a walk needs is said before it starts, and a bound is kept or refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.pretrained.models import build, texts
from torch import nn

import interpress
from interpress import ArgumentError
from interpress.calibration.backward import bytes_of_sensitivities
from interpress.calibration.room import GIB, bytes_at_once, free_bytes, make_room
from interpress.calibration.streamed import blocks_of
from interpress.spaces.spaces import Spaces

DATA = torch.randn(80, 16, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    sizes = [(16, 96), (96, 96), (96, 64), (64, 5)]
    layers = [part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


@pytest.fixture(scope="module")
def spaces() -> Spaces:
    return interpress.find_spaces(network(), DATA[:4])


def test_the_parts_are_those_of_the_largest_block(spaces: Spaces) -> None:
    room = make_room(spaces, blocks_of(spaces), 64, None)
    assert room.statistics == 8 * 8 * 96**2
    assert room.weights == 0  # the model is where it computes
    assert room.rest is None
    assert room.on_device == room.statistics + room.values + room.between
    text = str(room)
    assert "3 blocks" in text
    assert f"{room.on_device / GIB:.2f} GiB on cpu" in text


def test_more_examples_need_more_between_blocks_only(spaces: Spaces) -> None:
    blocks = blocks_of(spaces)
    few, many = (make_room(spaces, blocks, count, 0.01) for count in (64, 640))
    assert many.between == pytest.approx(10 * few.between, rel=0.1)
    assert many.statistics == few.statistics


def test_too_little_memory_is_refused_with_what_is_needed(spaces: Spaces) -> None:
    with pytest.raises(ArgumentError, match=r"memory=1e-06 is too little.*give at least memory=0"):
        make_room(spaces, blocks_of(spaces), 64, 1e-6)


def test_on_a_small_device_values_rest_on_the_cpu(spaces: Spaces) -> None:
    elsewhere = replace(spaces.program.example, device=torch.device("meta"))
    moved = replace(spaces, program=replace(spaces.program, example=elsewhere))
    blocks = blocks_of(moved)
    roomy = make_room(moved, blocks, 10_000, 1.0)
    assert roomy.rest is None
    assert roomy.weights == 2 * 4 * (16 * 96 + 96 + 96 * 96 + 96)
    tight = make_room(moved, blocks, 10_000, roomy.between / GIB)
    assert tight.rest == torch.device("cpu")
    assert "and on cpu" in str(tight)


def test_it_is_said_before_the_walk(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO, logger="interpress"):
        interpress.compress(network(), DATA, flops=0.7, checkpoint=tmp_path / "c", progress=False)
    first, second = caplog.messages
    assert "Going through 3 blocks" in first
    assert "takes up to 0.00 GiB" in second


def test_a_bound_on_memory_makes_a_deep_network_go_block_by_block() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), *layers, nn.Linear(64, 5)).eval()
    spaces = interpress.find_spaces(model, DATA[:4])
    memory = 0.9 * bytes_at_once(spaces) / GIB
    result = interpress.compress(model, DATA, flops=0.7, memory=memory, progress=False)
    assert result.study.walk is not None
    assert result.network.proof
    assert free_bytes(torch.device("cpu")) > 0


def test_the_sensitivities_of_a_language_model_count(spaces: Spaces) -> None:
    blocks = blocks_of(spaces)
    without, with_them = (make_room(spaces, blocks, 64, None, held) for held in (0, GIB))
    assert with_them.on_device == without.on_device + GIB
    assert "1.00 sensitivities" in str(with_them)
    assert "sensitivities" not in str(without)


def test_sensitivities_take_what_is_counted() -> None:
    model, data = build("llama"), texts(40)
    analysis = interpress.analyze(model, data, progress=False)
    counted = bytes_of_sensitivities(analysis.spaces, blocks_of(analysis.spaces))
    found = analysis.study.statistics.sensitivities
    held = sum(one.root.numel() * one.root.element_size() for one in found.values())
    assert held <= counted <= 2 * held


def test_too_little_memory_is_refused_before_gradients_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("gradients were measured")

    monkeypatch.setattr("interpress.pipeline.steps.measure_sensitivities", fail)
    with pytest.raises(ArgumentError, match=r"is too little.*sensitivities"):
        interpress.analyze(build("llama"), texts(40), memory=1e-5, progress=False)

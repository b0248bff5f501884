"""Models that repeat blocks are tried on a shorter copy, with the same result."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

import interpress
from interpress import SurgeryError
from interpress.dryrun import settle as settling
from interpress.dryrun.shorten import KEPT, Shortened, shorten
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of

IMAGES = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0))
TOKENS = {"input_ids": torch.randint(0, 64, (2, 7), generator=torch.Generator().manual_seed(0))}
LLAMA = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


class Block(nn.Module):
    """A residual block."""

    def __init__(self, dilation: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 12, 3, padding=dilation, dilation=dilation)
        self.second = nn.Conv2d(12, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x).relu())


class Splits(nn.Module):
    """A block whose code splits its channels at a number that it stores."""

    def __init__(self) -> None:
        super().__init__()
        self.half = 6
        self.first, self.second = nn.Conv2d(8, 12, 1), nn.Conv2d(6, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).split(self.half, 1)
        return x + self.second(a * b.sigmoid())


class Literal(nn.Module):
    """A block whose code cannot run with fewer channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 12, 1), nn.Conv2d(12, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return x + self.second(h.view(len(h), 12, *h.shape[2:]).relu())


def deep(block: Callable[[], nn.Module], count: int = 7) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 8, 1), *(block() for _ in range(count)), nn.Conv2d(8, 4, 1))


def llama(layers: int) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA, num_hidden_layers=layers, use_cache=False)
    return transformers.LlamaForCausalLM(config).eval()


def shortened(model: nn.Module, example: object = IMAGES) -> Shortened | None:
    return shorten(capture(model, example))


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (deep(Block), IMAGES),
        (deep(Splits), IMAGES),
        (deep(Literal), IMAGES),
        (nn.Sequential(deep(Block), nn.Conv2d(4, 8, 1), deep(Splits)), IMAGES),
        (llama(6), TOKENS),
    ],
    ids=["plain", "splits", "literal", "nested", "llama"],
)
def test_the_result_is_that_of_the_whole_model(model: nn.Module, example: object) -> None:
    program = capture(model.eval(), example)
    found, tried = settling.settle(spaces_of(program)), settling._tried(spaces_of(program))
    assert shorten(program) is not None
    assert found.names == tried.names
    assert found.choices == tried.choices
    assert found.rescaled == tried.rescaled
    for one, other in zip(found, tried, strict=True):
        assert (one.size, one.step, one.taps) == (other.size, other.step, other.taps)
        assert (one.frozen is None) == (other.frozen is None)


def test_two_blocks_stay_and_share_memory_with_the_model() -> None:
    model = deep(Block)
    short = shortened(model)
    assert short is not None
    assert len(list(short.program.model.children())) == KEPT + 2
    assert len(list(model.children())) == 9
    weights = [m.get_parameter("1.first.weight") for m in (model, short.program.model)]
    assert weights[0].data_ptr() == weights[1].data_ptr()
    assert short.name("0") == "0"
    assert short.name("7.first:heads") == "2.first:heads"
    assert short.name("8") == "3"
    assert [short.block(name) for name in ("0.weight", "5.first", "8")] == ["0", "5", "8"]


def test_blocks_that_differ_are_all_tried() -> None:
    blocks = (Block(dilation) for dilation in (1, 2, 1, 2, 1, 2))
    assert shortened(nn.Sequential(*blocks)) is None


class Indexed(nn.Module):
    """Reads its blocks by number, so none can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for number in range(6):
            x = self.blocks[number](x)
        return x


def test_a_model_that_needs_all_its_blocks_is_tried_whole() -> None:
    assert shortened(Indexed()) is None
    spaces = interpress.find_spaces(Indexed(), IMAGES, progress=False)
    assert len(spaces.shrinkable) == 6


def test_excluded_blocks_stay_frozen() -> None:
    spaces = interpress.find_spaces(deep(Block), IMAGES, exclude=["4"], progress=False)
    assert [space.name for space in spaces.shrinkable] == [f"{n}.first" for n in (1, 2, 3, 5, 6, 7)]
    assert "excluded" in str(spaces["4.first"].frozen)


class CopiesToItself(nn.Sequential):
    """Blocks whose copy is the original, from which nothing may be removed."""

    def __deepcopy__(self, memo: dict[int, object]) -> CopiesToItself:
        return self


def test_no_block_of_the_original_is_removed() -> None:
    model = CopiesToItself(*deep(Block))
    with pytest.raises(SurgeryError, match=r"shares its modules with the original.*__deepcopy__"):
        interpress.find_spaces(model, IMAGES, progress=False)
    assert len(model) == 9


def seconds(layers: int) -> float:
    """Return how long it takes to find the spaces of a Llama with so many layers."""
    model = llama(layers)
    started = time.perf_counter()
    interpress.find_spaces(model, TOKENS, progress=False)
    return time.perf_counter() - started


@pytest.mark.slow
def test_the_time_grows_with_the_number_of_blocks() -> None:
    """In a process of its own: pytest records what torch.export logs, which takes time."""
    code = "from tests.dryrun.test_shorten import seconds as s; s(2); print(s(32), s(64))"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    times = []
    for _ in range(2):
        run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        times.append([float(number) for number in run.stdout.split()])
    assert min(long for _, long in times) <= 2.2 * min(short for short, _ in times)

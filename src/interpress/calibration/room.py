"""How much memory a walk over the blocks needs, and how it fits into what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.calibration.consumers import shrinkable_taps
from interpress.errors import ArgumentError
from interpress.graph.blocks import Block, border_bytes
from interpress.graph.program import Program
from interpress.spaces.batching import captured_examples
from interpress.spaces.spaces import Spaces

GIB = 2**30
_MATRICES = 4  # Gram matrices per tap that are held: of all rows, of half of them, their moments
_MATRICES_AT_WORK = 8  # the same while a tap is worked on; 7.5 were measured
_FREE_SHARE = 0.5  # of the free memory of a device may be used, unless the user says how much
_VALUES_SHARE = 0.2  # of the memory that the user allows is for the values of one batch
_VALUES = 2 * GIB  # for these values, unless the user says; the result must not depend on luck
_NETWORKS_COMPARED = 5  # on held-out examples: the original and four allocations


@dataclass(frozen=True)
class Room:
    """What a walk needs, and how it is arranged."""

    most: int
    """Examples that run at once."""
    rest: torch.device | None
    """Where values rest between two blocks; None leaves them where they were computed."""
    weights: int
    """Bytes of the weights of one block of both networks, if they live elsewhere."""
    statistics: int
    """Bytes of the statistics of one block while they are worked on."""
    values: int
    """Bytes of the values of one batch inside a block."""
    between: int
    """Bytes of all values between two blocks."""
    sensitivities: int
    """Bytes of the sensitivities of all taps of a language model, which are held on the CPU."""
    blocks: int
    device: torch.device

    @property
    def on_device(self) -> int:
        """Bytes needed on the device that computes."""
        resting = self.between if self.rest is None else 0
        held = self.sensitivities if self.device.type == "cpu" else 0
        return self.weights + self.statistics + self.values + resting + held

    def __str__(self) -> str:
        parts = [
            f"{self.statistics / GIB:.2f} statistics",
            f"{self.values / GIB:.2f} values inside a block",
        ]
        if self.weights:
            parts.append(f"{self.weights / GIB:.2f} weights")
        between = f"{self.between / GIB:.2f} values between blocks"
        sensitivities = f"{self.sensitivities / GIB:.2f} sensitivities"
        if self.rest is None:
            parts.append(between)
        if self.sensitivities and self.device.type == "cpu":
            parts.append(sensitivities)
        text = (
            f"Going through {self.blocks} blocks, {self.most} examples at a time. Beyond the model "
            f"and its result this needs about {self.on_device / GIB:.2f} GiB on {self.device} "
            f"({', '.join(parts)})"
        )
        elsewhere = [] if self.rest is None else [between]
        if self.sensitivities and self.device.type != "cpu":
            elsewhere.append(sensitivities)
        return f"{text}, and on cpu {', '.join(elsewhere)}" if elsewhere else text


def bytes_at_once(spaces: Spaces) -> int:
    """Return about how many bytes the statistics of all taps take."""
    return sum(_MATRICES * 8 * tap.size**2 for tap in shrinkable_taps(spaces))


def make_room(
    spaces: Spaces,
    blocks: Sequence[Block],
    fit_examples: int,
    memory: float | None,
    sensitivities: int = 0,
) -> Room:
    """Return how a walk is arranged to hold at most `memory` GiB, or half of what is free.

    `sensitivities` are the bytes that those of a language model take.
    """
    program, captured = spaces.program, captured_examples(spaces)
    device = program.device
    allowed = int(memory * GIB) if memory is not None else int(_FREE_SHARE * free_bytes(device))
    per_example = max(1, 2 * spaces.cost.peak_bytes() // captured)
    most = max(1, int(_VALUES if memory is None else _VALUES_SHARE * allowed) // per_example)
    room = Room(
        most=most,
        rest=None,
        weights=_block_weights(program, blocks) if program.computes_elsewhere else 0,
        statistics=_block_statistics(spaces, blocks),
        values=min(most, fit_examples) * per_example,
        between=_between(program, blocks, captured, fit_examples),
        sensitivities=sensitivities,
        blocks=len(blocks),
        device=device,
    )
    if room.on_device > allowed and device.type != "cpu":
        room = Room(**{**vars(room), "rest": torch.device("cpu")})
    if memory is not None and room.on_device > allowed:
        raise ArgumentError(
            f"memory={memory:g} is too little: {room}; give at least "
            f"memory={room.on_device / GIB + 0.005:.2f}, fewer examples, or exclude the widest "
            "layers"
        )
    return room


def free_bytes(device: torch.device) -> int:
    """Return how much memory is free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":") for line in file)
        return int(sizes["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux
        return 8 * GIB


def _between(program: Program, blocks: Sequence[Block], captured: int, fit_examples: int) -> int:
    """Return the bytes of all values that are held between two blocks, in the largest step."""
    held = fit_examples // 4
    comparing = _NETWORKS_COMPARED * held
    refitting = 2 * fit_examples + 3 * held
    return border_bytes(program, blocks) // captured * (fit_examples + max(comparing, refitting))


def _block_statistics(spaces: Spaces, blocks: Sequence[Block]) -> int:
    """Return the bytes of the statistics of the largest block."""
    numbers = {node: number for number, block in enumerate(blocks) for node in block.nodes}
    held, largest = [0] * len(blocks), [0] * len(blocks)
    for tap in shrinkable_taps(spaces):
        number = numbers[tap.sites[0].op.node]
        held[number] += _MATRICES * 8 * tap.size**2
        working = (_MATRICES_AT_WORK - _MATRICES) * 8 * tap.size**2
        largest[number] = max(largest[number], working)
    return max(map(sum, zip(held, largest, strict=True)), default=0)


def _block_weights(program: Program, blocks: Sequence[Block]) -> int:
    """Return twice the bytes of the weights of the largest block."""
    parameters = program.parameters()

    def size(block: Block) -> int:
        operands = {operand for node in block.nodes for operand in node.all_input_nodes}
        names = {program.weight_name(operand) for operand in operands} - {None}
        return sum(_bytes(parameters[str(name)]) for name in names)

    return 2 * max(map(size, blocks), default=0)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

"""Statistics of a large network, measured block by block when they are asked for.

The statistics of all taps at once may not fit into memory. Here those of one block are held at a
time, and between two blocks only the values that later blocks need. Asking for the taps in the
order of the network costs one pass over the data. Asking for an earlier one begins a new pass.

Of several processes, each runs some of the batches, and the sums are added up in every block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import fx

from interpress.calibration.averaged import averaged_sources
from interpress.calibration.calibrate import Collector, survey
from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.row_weights import RowWeights
from interpress.calibration.statistics import Statistics
from interpress.calibration.together import LANES, lanes_of
from interpress.data.batches import batch_size, split_batch
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.blocks import Block, split
from interpress.graph.dense import dense_layer_of, transposes_of, weight_of
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.normalised import normalised_value
from interpress.graph.passage import Passage
from interpress.graph.patterns import epilogue_of
from interpress.graph.rows import BatchRows
from interpress.parallel.processes import Processes
from interpress.spaces.spaces import Spaces

Found = TypeVar("Found")
Batches = Callable[[], Iterable[Example]]
"""Returns the batches to fit, in the same order every time."""


def blocks_of(spaces: Spaces) -> list[Block]:
    """Return the blocks of a network.

    All that is measured of a space lies in one of them, and so do the weights that absorb `T`. A
    dense layer is in one block with the batch norm and the sum that follow it.
    """
    program, parameters = spaces.program, spaces.program.parameters()
    taps = shrinkable_taps(spaces)
    nodes: dict[str, set[fx.Node]] = {tap.name: {s.op.node for s in tap.sites} for tap in taps}
    for name in dense_consumers(spaces, taps):
        site = spaces.taps[name].sites[0].op.node
        nodes[name].add(normalised_value(site) or epilogue_of(program, site, parameters).last)
    for node, sources in averaged_sources(taps).items():
        for source in sources:
            nodes[source.tap].add(node)
    readers = _readers_of_weights(spaces)
    for tap in taps:
        for absorber in tap.absorbers:
            nodes[tap.name] |= readers.get(absorber.weight, set())
    groups = [set().union(*(nodes[tap] for tap in space.taps)) for space in spaces.shrinkable]
    layers = [n for n in program.operators() if dense_layer_of(program, n, parameters) is not None]
    epilogues = [{node, epilogue_of(program, node, parameters).last} for node in layers]
    for node, together in zip(layers, epilogues, strict=True):
        weight, is_transposed = weight_of(program, node)
        if is_transposed and weight is not None:  # it is transposed right before the layer
            together.update(set(transposes_of(program, weight)) & set(node.all_input_nodes))
    return split(program, groups, epilogues)


def _readers_of_weights(spaces: Spaces) -> dict[str, set[fx.Node]]:
    readers: dict[str, set[fx.Node]] = {}
    for node in spaces.program.operators():
        for operand in node.all_input_nodes:
            name = spaces.program.weight_name(operand)
            if name is not None:
                readers.setdefault(name, set()).add(node)
    return readers


class BlockWalk:
    """The original network on all batches, at the border between two blocks."""

    def __init__(
        self,
        spaces: Spaces,
        batches: Batches,
        blocks: list[Block],
        *,
        patches: bool,
        expected: int | None,
        seed: int,
        most: int | None = None,
        rest: torch.device | None = None,
        of_tokens: bool = False,
        row_weights: Mapping[str, RowWeights] | None = None,
    ) -> None:
        """Prepare to walk; at most `most` examples run at once, and values rest on `rest`.

        `of_tokens` and `row_weights` as for a `Collector`.
        """
        self._spaces, self._batches, self.blocks = spaces, batches, blocks
        self._patches, self._expected, self._seed = patches, expected, seed
        self.most, self.rest = most, rest
        self._of_tokens, self._row_weights = of_tokens, row_weights
        self._next = 0
        self._passage: Passage | None = None
        self._rows: list[tuple[int, BatchRows]] = []  # the lane of every batch, and its examples
        self._measured: tuple[int, Statistics] | None = None

    @cached_property
    def taps(self) -> dict[str, int]:
        """Per tap, in the order of the network, the number of its block."""
        numbers = {node: i for i, block in enumerate(self.blocks) for node in block.nodes}
        taps = shrinkable_taps(self._spaces)
        blocks = {tap.name: numbers[tap.sites[0].op.node] for tap in taps}
        return dict(sorted(blocks.items(), key=lambda item: item[1]))

    def spaces_in(self, number: int) -> list[str]:
        """Return the shrinkable spaces that are measured in a block."""
        return [s.name for s in self._spaces.shrinkable if self.taps[s.taps[0]] == number]

    @cached_property
    def executor(self) -> Executor:
        """The interpreter of the original network."""
        program = self._spaces.program
        return Executor(program, kernels=fast_kernels(program, program.parameters()))

    def statistics(self, tap: str) -> Statistics:
        """Return what was measured in the block of a tap."""
        number = self.taps[tap]
        if self._measured is None or self._measured[0] != number:
            self._measured = None  # released before the next block is measured
            self._measured = (number, self._measure(number))
        return self._measured[1]

    def release(self) -> None:
        """Forget the statistics of the last block."""
        self._measured = None

    def _measure(self, number: int) -> Statistics:
        if self._passage is None or number < self._next:
            self._passage, self._next = self._begin(), 0
        for skipped in range(self._next, number):
            self._passage.advance(self.blocks[skipped].nodes)
        names = [tap for tap, block in self.taps.items() if block == number]

        def empty() -> Collector:
            return Collector(
                self._spaces, self._seed, self._patches, self._expected, names,
                of_tokens=self._of_tokens, row_weights=self._row_weights,
            )  # fmt: skip

        if Processes().size == 1:
            collector = empty()
            self._advance(self._passage, number, range(len(self._rows)), collector)
        else:
            collector = self._together(self._passage, number, empty)
        self._next = number + 1
        if self._next == len(self.blocks):
            self._passage = None
        return collector.statistics(0, None)

    def _begin(self) -> Passage:
        """Return the passage of the batches that this process runs; all run the first one."""
        own, start, self._rows = lanes_of(Processes()), 0, []
        examples = []
        for number, batch in enumerate(self._batches()):
            for part in split_batch(batch, self.most):
                size = batch_size(part)
                if number % len(LANES) in own or start == 0:
                    rows = BatchRows(size, start, part.masks, self._seed, alone=self._expected == 1)
                    self._rows.append((number % len(LANES), rows))
                    examples.append(part)
                start += size
        return Passage.begin(self.executor, examples, self.rest)

    def _advance(
        self, passage: Passage, number: int, batches: Sequence[int], collector: Collector
    ) -> None:
        """Run a block on some batches, and add them to a collector."""

        def hooks(index: int) -> dict[str, Any]:
            collector.batch = self._rows[batches[index]][1]
            return {"before": collector.before, "after": collector.after}

        frames = [passage.frames[batch] for batch in batches]
        part = Passage(passage.executor, frames, passage.rest)
        part.advance(self.blocks[number].nodes, hooks)

    def _together(self, passage: Passage, number: int, empty: Callable[[], Collector]) -> Collector:
        """Measure a block in several processes; the sums are added up lane by lane."""
        processes, first, total = Processes(), empty(), empty()
        self._advance(passage, number, [0], first)  # every process runs it, to begin alike
        total.begin_like(first)
        for start in LANES[:: processes.size]:
            lane = start + processes.rank
            collector = first if lane == 0 else empty()
            if lane > 0:
                collector.begin_like(first)
            batches = [i for i, (other, _) in enumerate(self._rows) if i and other == lane]
            self._advance(passage, number, batches, collector)
            for rank in range(min(processes.size, len(LANES) - start)):
                state = collector.state() if rank == processes.rank else None
                total.add_state(processes.from_process(rank, state))
        return total


class _ByBlock(Mapping[str, Found]):
    """One part of the statistics, by tap."""

    def __init__(self, walk: BlockWalk, part: Callable[[Statistics], Mapping[str, Found]]) -> None:
        self._walk, self._part = walk, part

    def __getitem__(self, tap: str) -> Found:
        return self._part(self._walk.statistics(tap))[tap]

    def __iter__(self) -> Iterator[str]:
        return iter(self._walk.taps)

    def __len__(self) -> int:
        return len(self._walk.taps)

    def get(self, tap: str, default: Any = None) -> Any:
        """Return the part of a tap, or a default if it has none."""
        if tap not in self._walk.taps:
            return default
        return self._part(self._walk.statistics(tap)).get(tap, default)


def streamed(
    spaces: Spaces, walk: BlockWalk, batches: Batches, meaning: OutputMeaning | None = None
) -> Statistics:
    """Return statistics that a walk measures when they are asked for; see `calibrate`."""
    examples, top_classes = survey(spaces, batches(), meaning, walk.most)
    return Statistics(
        _ByBlock(walk, lambda found: found.halves),
        _ByBlock(walk, lambda found: found.output_variances),
        _ByBlock(walk, lambda found: found.moments),
        examples,
        top_classes,
        by_block=True,
    )

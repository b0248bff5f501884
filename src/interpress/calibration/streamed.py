"""Statistics of a large network, measured block by block when they are asked for.

The statistics of all taps at once may not fit into memory. Here those of one block are held at a
time, and between two blocks only the values that later blocks need. Asking for the taps in the
order of the network costs one pass over the data. Asking for an earlier one begins a new pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import fx

from interpress.calibration.averaged import averaged_sources
from interpress.calibration.calibrate import Collector, survey
from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.statistics import Statistics
from interpress.data.batches import batch_size
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.blocks import Block, split
from interpress.graph.example import Example
from interpress.graph.executor import Executor, Frame
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.patterns import epilogue_of
from interpress.graph.rows import BatchRows
from interpress.spaces.spaces import Spaces

_MATRICES = 4  # Gram matrices per tap: of all rows, of half of them, and what is made from them
Found = TypeVar("Found")
Batches = Callable[[], Iterable[Example]]
"""Returns the batches to fit, in the same order every time."""


def blocks_of(spaces: Spaces) -> list[Block]:
    """Return the blocks of a network; all that is measured of a space lies in one of them."""
    program, parameters = spaces.program, spaces.program.parameters()
    taps = shrinkable_taps(spaces)
    nodes: dict[str, set[fx.Node]] = {tap.name: {s.op.node for s in tap.sites} for tap in taps}
    for name in dense_consumers(spaces, taps):
        site = spaces.taps[name].sites[0].op.node
        nodes[name].add(epilogue_of(program, site, parameters).last)
    for node, sources in averaged_sources(taps).items():
        for source in sources:
            nodes[source.tap].add(node)
    groups = [set().union(*(nodes[tap] for tap in space.taps)) for space in spaces.shrinkable]
    return split(program, groups)


@dataclass(frozen=True, eq=False)
class _Batch:
    """One batch of examples at the border between two blocks."""

    rows: BatchRows
    frame: Frame


class BlockWalk:
    """The original network on all batches, at the border between two blocks."""

    def __init__(
        self, spaces: Spaces, batches: Batches, *, patches: bool, expected: int | None, seed: int
    ) -> None:
        self.blocks = blocks_of(spaces)
        self._spaces, self._batches = spaces, batches
        self._patches, self._expected, self._seed = patches, expected, seed
        kernels = fast_kernels(spaces.program, spaces.program.parameters())
        self._executor = Executor(spaces.program, kernels=kernels)
        blocks = {tap.name: self._block_of(tap.sites[0].op.node) for tap in shrinkable_taps(spaces)}
        self.taps = dict(sorted(blocks.items(), key=lambda item: item[1]))
        """Per tap, in the order of the network, the number of its block."""
        self._next = 0
        self._states: list[_Batch] | None = None
        self._measured: tuple[int, Statistics] | None = None

    def _block_of(self, node: fx.Node) -> int:
        return next(i for i, block in enumerate(self.blocks) if node in block)

    def statistics(self, tap: str) -> Statistics:
        """Return what was measured in the block of a tap."""
        number = self.taps[tap]
        if self._measured is None or self._measured[0] != number:
            self._measured = None  # released before the next block is measured
            self._measured = (number, self._measure(number))
        return self._measured[1]

    def _measure(self, number: int) -> Statistics:
        if self._states is None or number < self._next:
            self._states, self._next = list(self._begin()), 0
        for skipped in range(self._next, number):
            self._advance(self.blocks[skipped], None)
        names = [tap for tap, block in self.taps.items() if block == number]
        collector = Collector(self._spaces, self._seed, self._patches, self._expected, names)
        self._advance(self.blocks[number], collector)
        self._next = number + 1
        if self._next == len(self.blocks):
            self._states = None
        return collector.statistics(0, None)

    def _begin(self) -> Iterator[_Batch]:
        start = 0
        for example in self._batches():
            size = batch_size(example)
            rows = BatchRows(size, start, example.masks, self._seed, alone=self._expected == 1)
            yield _Batch(rows, self._executor.frame(example))
            start += size

    def _advance(self, block: Block, collector: Collector | None) -> None:
        hooks: dict[str, Any] = {}
        if collector is not None:
            hooks = {"before": collector.before, "after": collector.after}
        for batch in self._states or ():
            if collector is not None:
                collector.batch = batch.rows
            self._executor.advance(batch.frame, block.nodes, **hooks)


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
    spaces: Spaces,
    batches: Batches,
    *,
    patches: bool = True,
    meaning: OutputMeaning | None = None,
    expected: int | None = None,
    seed: int = 0,
) -> Statistics:
    """Return statistics that are measured when they are asked for; arguments as for `calibrate`."""
    examples, top_classes = survey(spaces, batches(), meaning)
    walk = BlockWalk(spaces, batches, patches=patches, expected=expected, seed=seed)
    return Statistics(
        _ByBlock(walk, lambda found: found.halves),
        _ByBlock(walk, lambda found: found.output_variances),
        _ByBlock(walk, lambda found: found.moments),
        examples,
        top_classes,
        by_block=True,
    )


def bytes_at_once(spaces: Spaces) -> int:
    """Return about how many bytes the statistics of all taps take."""
    return sum(_MATRICES * 8 * tap.size**2 for tap in shrinkable_taps(spaces))

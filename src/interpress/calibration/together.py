"""Calibrate in several processes.

The batches are dealt out to a fixed number of lanes, and the lanes to the processes. The sums of
the lanes are added in the same order whatever the number of processes, so it does not change the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from interpress.calibration.calibrate import Collector, predicts_tokens, run_batch
from interpress.calibration.output_checks import check_same_outputs
from interpress.calibration.row_weights import RowWeights
from interpress.calibration.sample_weights import TopClasses, concatenate, top_classes_of
from interpress.calibration.statistics import Statistics
from interpress.data.batches import batch_size
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.rows import BatchRows
from interpress.parallel.processes import Processes
from interpress.spaces.spaces import Spaces

LANES = range(8)
"""Sums that are made apart. More processes than this do not make calibration faster."""


def lanes_of(processes: Processes) -> list[int]:
    """Return the lanes that this process sums up."""
    return [lane for lane in LANES if lane % processes.size == processes.rank]


def calibrate_together(
    spaces: Spaces,
    batches: Iterable[Example],
    processes: Processes,
    *,
    patches: bool = True,
    meaning: OutputMeaning | None = None,
    expected: int | None = None,
    seed: int = 0,
    row_weights: Mapping[str, RowWeights] | None = None,
    done: Callable[[], None] = lambda: None,
) -> Statistics:
    """Return the statistics of all batches, which every process has; see `calibrate`."""

    def empty() -> Collector:
        of_tokens = predicts_tokens(meaning)
        return Collector(
            spaces, seed, patches, expected, of_tokens=of_tokens, row_weights=row_weights
        )

    kernels = fast_kernels(spaces.program, spaces.program.parameters())
    executor = Executor(spaces.program, kernels=kernels)
    own = lanes_of(processes)
    lanes: dict[int, Collector] = {}
    top_classes: dict[int, TopClasses | None] = {}
    examples = count = 0
    for number, example in enumerate(batches):
        size, lane = batch_size(example), number % len(LANES)
        if number == 0 or lane in own:
            if number == 0:  # every process runs it, to begin its lanes alike
                lanes = {0: empty()}
            elif lane not in lanes:
                lanes[lane] = empty()
                lanes[lane].begin_like(lanes[0])
            collector = lanes[lane]
            collector.batch = BatchRows(size, examples, example.masks, seed, alone=expected == 1)
            outputs = run_batch(executor, example, number, collector)
            if number == 0 and processes.is_first:
                check_same_outputs(spaces, example, outputs)
            top_classes[number] = top_classes_of(meaning, outputs, size)
        examples += size
        count += 1
        done()
    states = {lane: lanes[lane].state() for lane in own if lane in lanes}
    own_classes = {n: classes for n, classes in top_classes.items() if n % len(LANES) in own}
    found = processes.gathered((states, own_classes))
    total = empty()
    total.begin_like(lanes[0])
    by_lane = {lane: state for states, _ in found for lane, state in states.items()}
    for lane in sorted(by_lane):
        total.add_state(by_lane[lane])
    by_batch = {number: part for _, parts in found for number, part in parts.items()}
    return total.statistics(examples, concatenate([by_batch[number] for number in range(count)]))

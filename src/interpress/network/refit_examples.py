"""Which examples a refit takes, and whether calibration records the original's outputs for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.calibration.layer_outputs import ChosenOutputs, LayerOutputs
from interpress.calibration.sample_weights import draw_examples
from interpress.calibration.study import Study
from interpress.data.batches import batch_size, take
from interpress.graph.dense import DenseLayer
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.rows import BatchRows
from interpress.method import Method
from interpress.refit.refit import examples_needed, held_bytes
from interpress.refit.sample_size import sample_size
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.spaces import Spaces

_MEMORY = 1.0  # GiB that the refit may hold, unless the user says
_MEMORY_FOR_TOKENS = 4.0  # the same for language models, which gain by every text
_SHARE_FOR_VALUES = 0.8  # of the memory for activations; the rest is for sampled rows
_FEWEST_EXAMPLES = 16  # in a refit, whatever the memory
_EXAMPLES_PER_BATCH = 100  # in a refit, at most; on a CPU larger batches are not faster
_RARELY_TAKEN = 4
"""If a refit takes less than one in this many examples, its rows of the original are not recorded:
it is faster to run the original again on these few."""


@dataclass(frozen=True, eq=False)
class RefitExamples:
    """The examples of a refit in batches, and how much each of them counts."""

    examples: Sequence[Example]
    weights: Tensor | None
    recorded: ChosenOutputs | None = None
    """What the original gave for them, if calibration recorded it."""


def examples_taken(spaces: Spaces, memory: float | None, *, of_tokens: bool) -> int:
    """Return how many examples the memory allows and the layers need."""
    held = held_bytes(spaces.program) if of_tokens else spaces.cost.peak_bytes()
    both_networks = max(1, 2 * held // captured_examples(spaces))
    affordable = _bytes_of_values(memory, of_tokens=of_tokens) // both_networks
    return min(max(_FEWEST_EXAMPLES, affordable), examples_needed(spaces.program))


def _bytes_of_values(memory: float | None, *, of_tokens: bool) -> int:
    usual = _MEMORY_FOR_TOKENS if of_tokens else _MEMORY
    return int(_SHARE_FOR_VALUES * (memory or usual) * 2**30)


def outputs_to_record(spaces: Spaces, memory: float | None, expected: int) -> LayerOutputs | None:
    """Return what records the original's outputs on about `expected` examples, if a refit gains.

    It takes at most half of the memory of a refit, which then holds the values of one network only.
    How many inputs every layer keeps is not known yet, so there are enough rows for all of them.
    Not for language models.
    """
    taken = min(expected, examples_taken(spaces, memory, of_tokens=False))
    if taken * _RARELY_TAKEN < expected:
        return None

    def per_example(dense: DenseLayer) -> int:
        return -(-sample_size(dense, of_tokens=False) // taken)

    return LayerOutputs(spaces.program, per_example, _bytes_of_values(memory, of_tokens=False) // 2)


def refit_examples(study: Study, method: Method, memory: float | None) -> RefitExamples:
    """Return the examples of a refit."""
    spaces, data = study.spaces, study.require_data()
    count = examples_taken(spaces, memory, of_tokens=study.meaning.tokens is not None)
    weights = study.sample_weights() if method.balance else torch.ones(study.fit_examples)
    chosen, sample_weights = draw_examples(weights, count, study.seed)
    outputs = _record_again(study, memory) if study.outputs is None else study.outputs
    if outputs is not None and outputs.usable:
        return _recorded(study, outputs, chosen, sample_weights)
    limit = examples_per_batch(spaces, data.device)
    if study.walk is not None and study.walk.most is not None:
        limit = min(limit, study.walk.most)
    examples = data.examples_at("fit", chosen, min(limit, _EXAMPLES_PER_BATCH))
    return RefitExamples(examples, sample_weights)


def _record_again(study: Study, memory: float | None) -> LayerOutputs | None:
    """Run the original again to record what calibration would have recorded, to the same bits.

    This is for an analysis that was saved and loaded, and for several processes, each of which
    calibrated on a part of the examples but refits on all.
    """
    data, program = study.require_data(), study.spaces.program
    if study.walk is not None or study.meaning.tokens is not None:
        return None
    outputs = outputs_to_record(study.spaces, memory, expected := data.expected_fit_examples())
    if outputs is None:
        return None
    kernels, first = fast_kernels(program, program.parameters()), 0
    executor = Executor(program, kernels=kernels)
    for example in data.batches("fit"):
        size = batch_size(example)
        rows = BatchRows(size, first, example.masks, study.seed, alone=expected == 1)
        outputs.begin(rows, kernels)
        if not outputs.usable:
            return None
        executor.run(example, after=outputs.after)
        first += size
    return outputs


def _recorded(
    study: Study, outputs: LayerOutputs, chosen: Tensor, weights: Tensor | None
) -> RefitExamples:
    """Return the chosen examples in the batches in which they were calibrated."""
    examples, numbers, members = list[Example](), list[int](), list[Tensor]()
    start = 0
    for number, batch in enumerate(study.require_data().batches("fit")):
        size = outputs.sizes[number]
        index = chosen[(chosen >= start) & (chosen < start + size)] - start
        start += size
        if len(index):
            examples.append(batch if len(index) == size else take(batch, index))
            numbers.append(number)
            members.append(index)
    return RefitExamples(examples, weights, ChosenOutputs(outputs, numbers, members))

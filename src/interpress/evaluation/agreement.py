"""`agreement`: compare what two networks decide on the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.data.inputs import (
    LABELS,
    Forward,
    inputs_in,
    is_label,
    parameters_of,
    with_named_mask,
)
from interpress.data.masks import Mask
from interpress.data.texts import tokenized
from interpress.errors import DataError
from interpress.evaluation.output_meaning import AUTO, Output, OutputMeaning, find_meaning
from interpress.evaluation.outputs import flatten_output
from interpress.evaluation.tally import Agreement, Tally
from interpress.formats.network_formats import as_network
from interpress.graph.example import Example
from interpress.graph.misfit import explained
from interpress.graph.model_checks import check_has_values
from interpress.graph.model_state import evaluation, untouched, unwrap
from interpress.progress import display


def agreement(
    first: Any,
    second: Any,
    data: Any,
    *,
    labels: Any = None,
    forward: Forward | None = None,
    kind: str = AUTO,
    output: Output = None,
    mask: Mask | None = None,
    tokenizer: Any = None,
    progress: bool | None = None,
) -> Agreement:
    """Compare what two networks decide on the same data.

    A network may also be an exported program, or the path of a `.pt2` or ONNX file. `data` and
    `tokenizer` as for `compress`. Labels are taken from `(inputs, labels)` batches, from a `labels`
    key, or from `labels=` (one per example, in order). A network without decisions (one number per
    example, an image) gets `output_error`. `kind=` overrides what the shape of the output suggests:
    "classification" (scores along the last dim), "segmentation" (scores along dim 1), "binary" (the
    sign of one score), "decisions" (integers) or "regression".

    If the networks return several tensors, one of them decides, and the others get a relative error
    in `others` (1 is what predicting the mean gives). `output=` says which one decides: a key or a
    path such as "heads.box", an index, or a function from the whole output to a tensor. Without it,
    an output called `logits` decides, or else the scores with the most classes.

    Positions that a mask excludes are not compared. `mask` is a key of the batch, or a function
    from a batch to a tensor (examples, positions). Default: its `attention_mask`, and labels of
    -100.
    """
    if tokenizer is not None:
        data = tokenized(data, tokenizer)
    networks = unwrap(as_network(first)), unwrap(as_network(second))
    for network in networks:
        check_has_values(network)
    sources = (
        CalibrationSet(data, networks[0], forward=forward, mask=mask),
        CalibrationSet((), networks[1], forward=forward),
    )
    all_labels = None if labels is None else torch.as_tensor(labels)
    with (
        display(progress) as bars,
        bars.task("comparing", None) as advance,
        untouched(networks[0]),
        untouched(networks[1]),
    ):
        meaning = partial(_meaning, networks[0], kind=kind, output=output)
        tally = _tallied(networks, sources, all_labels, meaning, advance)
    return _result(tally, all_labels)


def _tallied(
    networks: tuple[nn.Module, nn.Module],
    sources: tuple[CalibrationSet, CalibrationSet],
    all_labels: Tensor | None,
    meaning: Callable[[Example], OutputMeaning],
    advance: Callable[[float], None],
) -> Tally | None:
    """Run both networks over the data of the first source; None if there are none."""
    tally: Tally | None = None
    for number, batch in enumerate(sources[0].raw()):
        examples = [source.convert(batch, number) for source in sources]
        if tally is None:
            tally = Tally(meaning(examples[0]))
        size = batch_size(examples[0])
        batch_labels = _labels(batch, networks[0], all_labels, tally.seen, size)
        outputs = [
            outputs_of(network, example, tally.meaning)
            for network, example in zip(networks, examples, strict=True)
        ]
        counted = tally.meaning.mask(outputs[0], examples[0])
        tokens = tally.meaning.tokens_of(examples[0])
        tally.add(outputs[0], outputs[1], batch_labels, counted, tokens)
        advance(size)
    return tally


def _meaning(model: nn.Module, example: Example, kind: str, output: Output) -> OutputMeaning:
    with explained(model, example):
        return find_meaning(model, example, kind, output)


def _result(tally: Tally | None, all_labels: Tensor | None) -> Agreement:
    if tally is None:
        raise DataError("there are no data to compare on; give some examples")
    if all_labels is not None and len(all_labels) > tally.seen:
        raise DataError(f"{len(all_labels)} labels for {tally.seen} examples; give one for each")
    return tally.result()


def _labels(
    batch: Any, model: nn.Module, all_labels: Tensor | None, start: int, size: int
) -> Tensor | None:
    """Return the labels of a batch: those that were given for all examples, or its own."""
    return labels_of(batch, model) if all_labels is None else _slice(all_labels, start, size)


def _slice(labels: Tensor, start: int, size: int) -> Tensor:
    part = labels[start : start + size]
    if len(part) != size:
        raise DataError(
            f"{len(labels)} labels for at least {start + size} examples; give one for each"
        )
    return part


def outputs_of(model: nn.Module, example: Example, meaning: OutputMeaning) -> list[Tensor]:
    """Return all output tensors of a model, run in evaluation mode, in the order of `meaning`."""
    network = unwrap(model)
    with evaluation(network), torch.no_grad(), explained(network, example):
        tensors, _ = flatten_output(example.call(network))
    return [tensor.detach() for tensor in meaning.layout.aligned(tensors)]


def labels_of(batch: Any, model: nn.Module) -> Tensor | None:
    """Return the labels that a batch carries beside the model's inputs, if any."""
    batch = with_named_mask(batch, model)
    if isinstance(batch, Mapping):
        named = parameters_of(model)
        labels = next((v for k, v in batch.items() if k in LABELS and is_label(k, named)), None)
    else:
        is_tuple = isinstance(batch, tuple | list)
        labels = batch[-1] if is_tuple and len(batch) > inputs_in(batch, model) else None
    return labels if isinstance(labels, Tensor) and not labels.is_floating_point() else None

"""Distil a finished network: arrange the run, judge its outcome, and keep the better network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from interpress.calibration.study import Study
from interpress.checks import is_number, is_whole
from interpress.data.batches import split_batch
from interpress.data.calibration_set import CalibrationSet
from interpress.distill.distillation import Distillation
from interpress.distill.inputs import Augment, Inputs
from interpress.distill.memory import BatchSizes, batch_sizes, decisions_per_example
from interpress.distill.output_loss import OutputLoss
from interpress.distill.pair import HeldOut, Pair
from interpress.distill.recompute import recomputed
from interpress.distill.steps import trainable
from interpress.distill.training import Limit, Training
from interpress.errors import ArgumentError
from interpress.evaluation.agreement import outputs_of
from interpress.evaluation.evaluator import Evaluator
from interpress.files.checkpoint import Checkpoint
from interpress.graph.model_state import evaluation, untouched
from interpress.network.loss import held_out_loss
from interpress.network.network import Network
from interpress.parallel.processes import Processes
from interpress.pipeline.identity import distilling_identity
from interpress.pipeline.options import Options
from interpress.pipeline.steps import read_data
from interpress.progress import Display, display
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.surgery.weights import copy_with

MINUTES = 2.0
"""How long a distillation takes, if the user does not say."""
_FEWEST_HELD_OUT = 5
"""Held-out examples without which nothing says whether training helps."""
_FEWEST_TEXTS = 2
"""The same for language models, whose every example has many decisions."""


@dataclass(frozen=True)
class DistillOptions:
    """What a user can ask of a distillation, checked."""

    minutes: float | None = None
    steps: int | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        if self.minutes is not None and not (is_number(self.minutes) and 0 < self.minutes < 1e6):
            raise ArgumentError(f"minutes={self.minutes!r}; give a number above 0, such as 2.0")
        if self.steps is not None and not (is_whole(self.steps) and self.steps > 0):
            raise ArgumentError(f"steps={self.steps!r}; give a whole number of at least 1")

    @property
    def limit(self) -> Limit:
        """When training ends: the first limit that is reached."""
        minutes = self.minutes
        if minutes is None and self.steps is None:
            minutes = MINUTES
        return Limit(None if minutes is None else 60 * minutes, self.steps)


def distill_network(
    study: Study, network: Network, data: Any, asked: DistillOptions, options: Options
) -> Network:
    """Return a network after a distillation that a user asked for, on given data or the study's."""
    processes = Processes()
    with (
        processes.together(),
        display(options.progress if processes.is_first else False) as bars,
        untouched(study.original),
    ):
        if data is None:
            examples = study.require_data()
        else:
            examples = read_data(study.original, data, replace(options, seed=study.seed))
        checkpoint = Checkpoint()
        if options.checkpoint is not None:
            identity = distilling_identity(network.model, examples, asked)
            checkpoint = Checkpoint.open(options.checkpoint, identity)
        return distilled(
            study, network, examples, asked, bars, memory=options.memory, checkpoint=checkpoint
        )


def distilled(
    study: Study,
    network: Network,
    data: CalibrationSet,
    options: DistillOptions,
    bars: Display,
    *,
    memory: float | None = None,
    checkpoint: Checkpoint | None = None,
) -> Network:
    """Return the network after gradient steps towards the original, or as it was if not better."""
    held = list(data.gathered("held", examples_per_batch(study.spaces, data.device)))
    fewest = _FEWEST_HELD_OUT if study.meaning.tokens is None else _FEWEST_TEXTS
    if not data.holds_out or sum(len(e.tensors()[0]) for e in held) < fewest:
        few = f"it needs at least {fewest} held-out examples, which are one in five of those given"
        return replace(network, distillation=Distillation(0, 0.0, 0.0, 0.0, False, few))
    evaluator = Evaluator(
        study.original, data, study.meaning, examples_per_batch(study.spaces, data.device)
    )
    with _training_mode(study.original, network.model, data.device) as student:
        sizes = _sizes(study, network, data, memory)
        reference = outputs_of(study.original, held[0], study.meaning)
        loss = OutputLoss(study.meaning, reference)
        pair = Pair(study.original, student, study.meaning, loss, sizes.at_once)
        parts = [part for example in held for part in split_batch(example, sizes.step)]
        inputs = Inputs(data, study.seed, options.augment)
        with recomputed(student, sizes.recompute):
            training = Training(pair, HeldOut(pair, parts), options.limit)
            done = training.run(inputs, sizes.step, checkpoint or Checkpoint(), bars)
    if not done.kept:
        return replace(network, distillation=done)
    return _better(network, student, done, evaluator)


def _sizes(
    study: Study, network: Network, data: CalibrationSet, memory: float | None
) -> BatchSizes:
    held = study.spaces.cost(network.plan.widths).activation_bytes
    first = data.first()
    positions = decisions_per_example(study.meaning, outputs_of(study.original, first, study.meaning))
    per_example = held // captured_examples(study.spaces)
    return batch_sizes(per_example, positions, data.device, memory)


@contextlib.contextmanager
def _training_mode(
    original: nn.Module, smaller: nn.Module, device: torch.device
) -> Iterator[nn.Module]:
    """Yield a copy of the smaller network to train, on the device that computes."""
    with torch.inference_mode(False), torch.enable_grad(), untouched(original):
        student = copy_with(smaller, {}).to(device)
        with evaluation(original), trainable(student):
            yield student


def _better(
    network: Network, student: nn.Module, done: Distillation, evaluator: Evaluator
) -> Network:
    """Return the distilled network, unless the measure of all comparisons finds it worse."""
    named = dict(network.model.named_parameters())
    weights = {name: tensor.detach().to(named[name]) for name, tensor in student.named_parameters()}
    trained = copy_with(network.model, weights)
    Processes().share([*trained.parameters(), *trained.buffers()])
    before, after = evaluator.agreements(network.model, trained)
    if held_out_loss(after) > held_out_loss(before):
        why = "the outputs came closer, but the decisions on held-out examples did not"
        return replace(network, distillation=replace(done, kept=False, reason=why))
    return replace(network, model=trained, agreement=after, distillation=done)

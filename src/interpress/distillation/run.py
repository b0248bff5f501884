"""Distil a finished network: arrange the run, judge its outcome, and keep the better network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from interpress._version import __version__
from interpress.data.batches import batch_size, split_batch
from interpress.data.calibration_set import CalibrationSet
from interpress.distillation.inputs import Inputs, is_mixed
from interpress.distillation.memory import BatchSizes, batch_sizes, decisions_per_example
from interpress.distillation.memory_format import use_channels_last
from interpress.distillation.moves import Move, harmless_moves
from interpress.distillation.options import DistillOptions
from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import HeldOut, Pair
from interpress.distillation.recompute import recomputed
from interpress.distillation.record import Distillation
from interpress.distillation.steps import trainable
from interpress.distillation.training import Training
from interpress.evaluation.agreement import outputs_of
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement
from interpress.files.checkpoint import Checkpoint, digest
from interpress.graph.digest import weights_digest
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation, untouched
from interpress.parallel.processes import Processes
from interpress.progress import Display
from interpress.surgery.weights import copy_with

_FEWEST_HELD_OUT = 5
"""Held-out examples without which nothing says whether training helps."""
_FEWEST_TEXTS = 2
"""The same for language models, whose every example has many decisions."""

_ENOUGH_TO_SCALE = 256
_REFERENCE_BYTES = 2**28
"""The outputs of this many examples, up to this size, say how much an output varies."""


@dataclass(frozen=True, eq=False)
class Distilled:
    """A network after distillation, with the evidence.

    `model` has the trained weights if they are better on held-out examples, and else the weights
    that the distillation started from.
    """

    model: nn.Module
    agreement: Agreement | None
    """Agreement of `model` with the original on held-out examples; None if there were too few."""
    distillation: Distillation
    """What the gradient steps did."""

    def __str__(self) -> str:
        judged = "" if self.agreement is None else f" Held-out examples: {self.agreement}."
        return f"{self.distillation}{judged}"


def distill_network(
    original: nn.Module,
    smaller: nn.Module,
    data: CalibrationSet,
    meaning: OutputMeaning,
    options: DistillOptions,
    bars: Display,
    *,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
) -> Distilled:
    """Return the network after gradient steps towards the original, or as it was if not better."""
    if (reason := _too_few(data, meaning)) is not None:
        return Distilled(smaller, None, Distillation(0, 0.0, 0.0, 0.0, False, reason))
    with _training_copy(original, smaller, data.device) as student:
        sizes = _sizes(student, original, data, meaning, options.memory)
        held = list(data.gathered("held", sizes.at_once))
        loss = OutputLoss(meaning, _reference(original, held, meaning))
        channels_last = use_channels_last(original, student, data.first())
        pair = Pair(original, student, meaning, loss, sizes.at_once, channels_last)
        parts = [part for example in held for part in split_batch(example, sizes.step)]
        moves = [] if options.augment is not None else _moves(pair, held, seed)
        inputs = Inputs(data, seed, options.augment, moves)
        with recomputed(student, sizes.recompute):
            training = Training(pair, HeldOut(pair, parts), options.limit)
            done = training.run(inputs, sizes.step, checkpoint or Checkpoint(), bars)
        done = replace(done, inputs=_described(held, moves), loss=loss.name)
    evaluator = Evaluator(original, data, meaning, sizes.at_once)
    return _better(smaller, student, done, evaluator)


def open_checkpoint(
    folder: str,
    original: nn.Module,
    smaller: nn.Module,
    data: CalibrationSet,
    asked: DistillOptions,
) -> Checkpoint:
    """Return the checkpoint of a distillation, after checking that it belongs to this one."""
    named = getattr(asked.augment, "__qualname__", repr(asked.augment))
    identity = {
        "model": weights_digest(original),
        "smaller model": weights_digest(smaller),
        "data": data.digest(),
        "set of options": digest(asdict(replace(asked, augment=None)) | {"augment": named}),
        "version of interpress or torch": f"{__version__} {torch.__version__}",
    }
    return Checkpoint.open(folder, identity)


def _reference(
    original: nn.Module, held: Sequence[Example], meaning: OutputMeaning
) -> list[list[Tensor]]:
    """Return the original's outputs on as many held-out batches as tell how much they vary."""
    outputs: list[list[Tensor]] = []
    count = 0
    for example in held:
        outputs.append(outputs_of(original, example, meaning))
        count += batch_size(example)
        held_bytes = sum(tensor.nbytes for batch in outputs for tensor in batch)
        if count >= _ENOUGH_TO_SCALE or held_bytes > _REFERENCE_BYTES:
            break
    return outputs


def _moves(pair: Pair, held: Sequence[Example], seed: int) -> list[Move]:
    """Return the moves of inputs that the original hardly notices; the same in all processes."""

    def difference(example: Example, changed: Example) -> Tensor:
        return pair.loss(pair.wanted(example), pair.wanted(changed), example)

    moves = harmless_moves(held, difference, seed)
    names = Processes().from_process(0, tuple(move.name for move in moves))
    return [move for move in moves if move.name in names]


def _described(held: Sequence[Example], moves: Sequence[Move]) -> str:
    """Return in words how inputs are changed."""
    mixed = ["mixed in pairs"] if held and is_mixed(held[0]) else []
    return ", ".join([*mixed, *(move.name for move in moves)])


def _too_few(data: CalibrationSet, meaning: OutputMeaning) -> str | None:
    """Return why held-out examples cannot judge the training; None if they can."""
    fewest = _FEWEST_HELD_OUT if meaning.tokens is None else _FEWEST_TEXTS
    held = data.count("held") if data.holds_out else 0
    if held >= fewest:
        return None
    return (
        f"{held} examples are held out, but {fewest} are needed to see whether training helps; "
        f"give at least {5 * fewest} examples, of which one in five is held out"
    )


def _sizes(
    student: nn.Module,
    original: nn.Module,
    data: CalibrationSet,
    meaning: OutputMeaning,
    memory: float | None,
) -> BatchSizes:
    first = data.first()
    positions = decisions_per_example(meaning, outputs_of(original, first, meaning))
    return batch_sizes(student, replace(first, device=None), positions, data.device, memory)


@contextlib.contextmanager
def _training_copy(
    original: nn.Module, smaller: nn.Module, device: torch.device
) -> Iterator[nn.Module]:
    """Yield a copy of the smaller network to train, on the device that computes."""
    with torch.inference_mode(False), torch.enable_grad(), untouched(original):
        student = copy_with(smaller, {}).to(device)
        with evaluation(original), trainable(student):
            yield student


def _better(
    smaller: nn.Module, student: nn.Module, done: Distillation, evaluator: Evaluator
) -> Distilled:
    """Return the distilled network, unless the measure of all comparisons finds it worse."""
    if not done.kept:
        return Distilled(smaller, evaluator.agreement(smaller), done)
    named = dict(smaller.named_parameters())
    weights = {
        name: torch.empty_like(named[name]).copy_(tensor.detach())
        for name, tensor in student.named_parameters()
    }
    trained = copy_with(smaller, weights)
    Processes().share([*trained.parameters(), *trained.buffers()])
    before, after = evaluator.agreements(smaller, trained)
    if held_out_loss(after) > held_out_loss(before):
        why = "the outputs came closer, but the decisions on held-out examples did not"
        return Distilled(smaller, before, replace(done, kept=False, reason=why))
    return Distilled(trained, after, done)

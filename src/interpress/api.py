"""`analyze`, `compress` and `distill`: the steps of the pipeline in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from interpress.allocation.problem import WidthLimits
from interpress.analysis import Analysis
from interpress.data.inputs import Forward
from interpress.data.masks import Mask
from interpress.data.not_finite import inputs_blamed
from interpress.data.preprocessing import Preprocessing, as_preprocessing
from interpress.data.texts import tokenized
from interpress.distillation.inputs import Augment
from interpress.distillation.options import DistillOptions
from interpress.distillation.run import Distilled
from interpress.dryrun import find as dryrun
from interpress.evaluation.output_meaning import AUTO, Output
from interpress.formats.network_formats import as_network
from interpress.graph.dispatched import without_dispatch
from interpress.graph.garbage import old_objects_set_aside
from interpress.graph.global_settings import cpu_by_default
from interpress.graph.model_state import untouched, unwrap, without_autocast
from interpress.method import Method
from interpress.onnx_files.compare import check_reading
from interpress.parallel.processes import Processes
from interpress.pipeline.distilling import distill_pair
from interpress.pipeline.options import Options, as_device, as_folder, as_patterns
from interpress.pipeline.steps import find, measure, read_data
from interpress.progress import display
from interpress.result import Result
from interpress.spaces.spaces import Spaces

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Model: TypeAlias = "nn.Module | str | os.PathLike[str] | ExportedProgram"
"""A network; a file that holds one, by its path; or an exported program."""


def analyze(
    model: Model,
    data: Any,
    *,
    exclude: Sequence[str] = (),
    forward: Forward | None = None,
    kind: str = AUTO,
    output: Output = None,
    mask: Mask | None = None,
    tokenizer: Any = None,
    patches: bool = True,
    part: str | None = None,
    memory: float | None = None,
    device: str | torch.device | None = None,
    preprocessing: Preprocessing | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Analysis:
    """Run a model over unlabelled data once; the result answers any number of budgets.

    `data`, `exclude`, `forward`, `kind`, `output`, `mask`, `tokenizer`, `part`, `memory`, `device`,
    `preprocessing` and `seed` as for `compress`.
    `patches=False` skips what only the selection "patches" needs, which is most of the cost.
    """
    with Processes().together():
        options = Options(
            exclude=as_patterns(exclude), forward=forward, kind=kind, output=output, mask=mask,
            patches=patches, memory=memory, device=as_device(device),
            preprocessing=as_preprocessing(preprocessing), seed=seed, progress=progress,
        )  # fmt: skip
        return _analyzed(model, _tokens(data, tokenizer), options, part)


def find_spaces(
    model: Model,
    example: Any,
    *,
    exclude: Sequence[str] = (),
    progress: bool | None = None,
) -> Spaces:
    """Return the channel spaces of a network: the sets of channels that can be removed together.

    `model` is a network, an exported program, or the path of a `.pt2` or ONNX file. `example` is
    what its forward takes: a tensor, a tuple of positional inputs, or a dict of keyword inputs.
    `exclude` names modules that must not change, by patterns such as `"layer4.*"`. Every shrinkable
    space has been shrunk once on a copy of the model, and the result was proved by the projection
    identity. Every other space is frozen, with a reason. `print` the result for a table. The model
    is not changed.
    """
    with without_autocast(), cpu_by_default():
        return dryrun.find_spaces(model, example, exclude=exclude, progress=progress)


def compress(
    model: Model,
    data: Any,
    *,
    method: str | Method = "preserve",
    exclude: Sequence[str] = (),
    round_to: int = 1,
    min_width: int = 1,
    same_widths: bool = False,
    lowrank: bool = False,
    distill: bool | float = False,
    forward: Forward | None = None,
    kind: str = AUTO,
    output: Output = None,
    mask: Mask | None = None,
    tokenizer: Any = None,
    part: str | None = None,
    memory: float | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    preprocessing: Preprocessing | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
    **budget: float | None,
) -> Result:
    """Make a trained network smaller while it keeps making the same decisions.

    Give one budget: `flops`, `params`, `latency` or `width` (the fraction to keep), `agreement` or
    `perplexity` (to hold on held-out examples), or `error` (per layer, relative, certified).

    Args:
        model: The network, an exported program, or a `.pt2` or ONNX file. It is left as it was.
        data: Unlabelled inputs: a tensor, a DataLoader, or an iterable of tensors, dicts or tuples
            (inputs first, labels ignored). One in five is held out, never fitted.
        method: "preserve", "iterative-id", "constant-id", or an `interpress.Method`.
        exclude: Layers to leave alone, by name or by patterns such as `"layer4.*"`.
        round_to, min_width: Every width becomes a multiple of the one, and at least the other.
        same_widths: Give corresponding layers the same width, as `result.save_pretrained` needs.
        lowrank: Whether layers may become two thin ones, for `flops` and `params`; costs run time.
        distill: Whether to take gradient steps afterwards: True (2 minutes), or minutes to train.
        forward: `forward(model, batch)` calls the model, if `model(batch)` does not.
        kind, output: What the output means, and which of several decides; see `agreement`.
        mask: Which positions count: a key of the batch, or a function of it; see `agreement`.
        tokenizer: The tokenizer of a language model, if the data are a list of texts.
        part: The module to compress, such as "backbone"; `data` are inputs of the whole model.
        memory: GiB to hold beyond the model and its result; what needs more goes block by block.
        device: Where to compute, such as "cuda", if the model lives elsewhere and is to stay there.
        checkpoint: A folder that keeps finished blocks, so that a call that was ended goes on.
        preprocessing: What was done to raw inputs, to record: a dict such as `{"size": 224}`.
        seed: Draws the held-out examples; the same seed gives the same result.
        progress: Whether to show progress; None shows it on a terminal.
    """
    with Processes().together():
        options = Options(exclude=as_patterns(exclude), forward=forward, kind=kind, output=output,
            mask=mask, memory=memory, device=as_device(device), checkpoint=as_folder(checkpoint),
            distill=DistillOptions.from_argument(distill), lowrank=lowrank, seed=seed,
            preprocessing=as_preprocessing(preprocessing))  # fmt: skip
        limits = WidthLimits(round_to, min_width, same_widths)
        asked = options.asking(budget, method, limits, progress)
        return _last_answer(_analyzed(model, _tokens(data, tokenizer), asked, part))


def distill(
    model: Model,
    smaller: Model,
    data: Any,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    augment: Augment | None = None,
    forward: Forward | None = None,
    kind: str = AUTO,
    output: Output = None,
    mask: Mask | None = None,
    tokenizer: Any = None,
    memory: float | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Distilled:
    """Train a smaller network towards the outputs of the original, without labels.

    This is `Result.distill` for a network that was loaded from a folder, or made in another way.
    `smaller` is left as it was. `minutes`, `steps`, `augment`, `memory` and `checkpoint` as for
    `Result.distill`; `data`, `forward`, `kind`, `output`, `mask`, `tokenizer`, `device` and `seed`
    as for `compress`.
    """
    with Processes().together():
        asked = DistillOptions(minutes, steps, augment, memory)
        options = Options(forward=forward, kind=kind, output=output, mask=mask,
            device=as_device(device), checkpoint=as_folder(checkpoint), seed=seed,
            progress=progress)  # fmt: skip
        original, student = (_whole(network) for network in (model, smaller))
        return distill_pair(original, student, _tokens(data, tokenizer), asked, options)


def _last_answer(analysis: Analysis) -> Result:
    """Return what an analysis was made for, and release what only other budgets would need."""
    result = analysis.answer()
    if analysis.study.outputs is not None:
        analysis.study.outputs.release()
    return result


def _tokens(data: Any, tokenizer: Any) -> Any:
    return data if tokenizer is None else tokenized(data, tokenizer)


def _whole(model: Any) -> nn.Module:
    """Return a model without wrappers; a file is read."""
    return without_dispatch(unwrap(as_network(model)))


def _analyzed(model: Any, data: Any, options: Options, part: str | None) -> Analysis:
    processes = Processes()
    whole = _whole(model)
    options = options.of_part(whole, part)
    network = whole if options.part is None else options.part.module
    if not processes.is_first:
        options = replace(options, progress=False)
    with untouched(network), old_objects_set_aside():
        calibration = read_data(network, data, options)
        check_reading(network, calibration.first())
        with inputs_blamed(calibration):
            spaces = find(network, calibration, options)
        with display(options.progress) as bars, inputs_blamed(calibration):
            study = measure(spaces, calibration, options, bars)
    return Analysis(study, options)

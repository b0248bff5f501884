"""The steps of the pipeline: each turns one record into the next."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from interpress.allocation.effects import Effects
from interpress.allocation.grouped import grouped
from interpress.allocation.problem import Problem
from interpress.allocation.registry import ALLOCATIONS, DIVERGENCES
from interpress.budgets.search import Search
from interpress.calibration.backward import EXAMPLES as SENSITIVITY_EXAMPLES
from interpress.calibration.backward import bytes_of_sensitivities, measure_sensitivities
from interpress.calibration.calibrate import calibrate
from interpress.calibration.room import GIB, Room, bytes_at_once, make_room
from interpress.calibration.sensitivity import Sensitivity, row_weights_of
from interpress.calibration.streamed import BlockWalk, blocks_of, streamed
from interpress.calibration.study import Study
from interpress.calibration.together import calibrate_together
from interpress.data.batches import split_batch
from interpress.data.calibration_set import CalibrationSet
from interpress.data.shards import joined
from interpress.data.sources import rereadable
from interpress.dryrun.find import find_spaces
from interpress.errors import ArgumentError
from interpress.evaluation.output_meaning import OutputMeaning, find_meaning
from interpress.files.checkpoint import Checkpoint
from interpress.graph.model_checks import check_model
from interpress.network.network import Network
from interpress.network.refit_examples import outputs_to_record
from interpress.parallel.processes import Processes
from interpress.pipeline.identity import checkpoint_bytes, identity
from interpress.pipeline.left_whole import measurable
from interpress.pipeline.literal import literal_iterative_id
from interpress.pipeline.low_rank import check_low_rank, solve_low_rank
from interpress.pipeline.options import Options
from interpress.pipeline.warn import warn_about
from interpress.pretrained.config_edits import has_config, has_lists
from interpress.pretrained.describe import config_values, update_config
from interpress.pretrained.width_groups import groups_of_blocks
from interpress.progress import Display
from interpress.selection.orders import Orders
from interpress.spaces.batching import examples_per_batch
from interpress.spaces.spaces import Spaces
from interpress.surgery.projection_identity import two_examples

_NAMED = 5  # frozen spaces that an error names
_AT_ONCE = 2**32  # bytes of statistics that are held at once; more are measured block by block


def read_data(model: nn.Module, data: Any, options: Options) -> CalibrationSet:
    """Return the calibration set, after checking the model, and that the data can be reread."""
    check_model(model)
    processes = Processes()
    if processes.size > 1:
        data = joined(rereadable(data, model), processes)
    calibration = CalibrationSet(
        data,
        model,
        forward=options.forward,
        mask=options.mask,
        seed=options.seed,
        device=elsewhere(model, options.device),
    )
    if options.part is not None and (first := next(calibration.raw(), None)) is not None:
        options.part.check(first)
    calibration.check_stable()
    return calibration


def elsewhere(model: nn.Module, device: torch.device | None) -> torch.device | None:
    """Return the device to compute on; None if all of the model lives there.

    A model that lives on several devices computes on the first of them that is not the CPU.
    """
    homes = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    if device is None and len(homes) > 1:
        device = min(homes, key=lambda home: (home.type == "cpu", str(home)))
    return device if homes - {device} else None


def find(model: nn.Module, data: CalibrationSet, options: Options) -> Spaces:
    """Capture the model and return its channel spaces; raise if none can shrink."""
    spaces = find_spaces(model, data.first(), exclude=options.exclude, progress=options.progress)
    usable = measurable(spaces)
    if not usable.shrinkable:
        number = len(spaces)
        are_frozen = (
            "its only space is frozen" if number == 1 else f"all {number} spaces are frozen"
        )
        if not number:
            raise ArgumentError(
                "nothing in this model can shrink: it has no layer that makes channels; give a "
                "network with linear or convolutional layers"
            )
        reasons = "; ".join(f"{space.name}: {space.frozen}" for space in usable.frozen[:_NAMED])
        if number > _NAMED:
            reasons += f"; and {number - _NAMED} more"
        raise ArgumentError(
            f"nothing in this model can shrink: {are_frozen} ({reasons}); "
            "exclude less, or see 'Frozen reasons' in the documentation for what can be done"
        )
    return spaces


def measure(spaces: Spaces, data: CalibrationSet, options: Options, bars: Display) -> Study:
    """Run the network over the calibration set once and return what was measured.

    The statistics of a large network are measured later, block by block.
    """
    meaning = find_meaning(spaces.program.model, data.first(), options.kind, options.output)
    processes, usable = Processes(), measurable(spaces)
    of_tokens = meaning.tokens is not None
    room = _room(usable, data, options, of_tokens, bars) if _is_large(spaces, options) else None
    sensitivities = _sensitivities(usable, data, meaning, options, bars)
    settings: dict[str, Any] = {
        "patches": options.patches,
        "expected": data.expected_fit_examples(),
        "seed": options.seed,
        "row_weights": row_weights_of(sensitivities),
    }
    walk = outputs = None
    if room is not None:
        batches = lambda: data.batches("fit")  # noqa: E731
        settings |= {"most": room.most, "rest": room.rest, "of_tokens": of_tokens}
        walk = BlockWalk(usable, batches, blocks_of(usable), **settings)
        with bars.task("looking at the data", None):
            statistics = streamed(spaces, walk, lambda: data.batches("fit"), meaning)
    else:
        settings["meaning"] = meaning
        most = None
        if of_tokens:  # one score per token of the vocabulary takes much memory
            most = examples_per_batch(spaces, data.device)
        count = data.batch_count() if most is None else -(-data.count("fit") // most)
        with bars.task("calibrating", count) as advance:
            parts = (part for batch in data.batches("fit") for part in split_batch(batch, most))
            settings["done"] = lambda: advance(1)
            if processes.size > 1:
                statistics = calibrate_together(spaces, parts, processes, **settings)
            else:
                if options.method.refit and options.patches and not of_tokens:
                    outputs = outputs_to_record(usable, options.memory, settings["expected"])
                statistics = calibrate(spaces, parts, layer_outputs=outputs, **settings)
    return Study(
        spaces=usable,
        statistics=replace(statistics, data=data.fingerprint(), sensitivities=sensitivities),
        data=data,
        meaning=meaning,
        fit_examples=statistics.examples,
        top_classes=statistics.top_classes,
        seed=options.seed,
        walk=walk,
        outputs=outputs,
    )


def _sensitivities(
    spaces: Spaces, data: CalibrationSet, meaning: OutputMeaning, options: Options, bars: Display
) -> Mapping[str, Sensitivity]:
    """Measure how the predicted tokens react to errors, if the model is a language model."""
    if meaning.tokens is None or not options.patches:
        return {}
    batches = data.batches("fit", limit=SENSITIVITY_EXAMPLES)
    with bars.task("measuring sensitivities", None):
        found = measure_sensitivities(spaces, blocks_of(spaces), batches, meaning, options.seed)
    if not found:
        bars.note(
            "The gradients of this model cannot be computed, so the effect of every layer on the "
            "predicted tokens is measured by shrinking it alone"
        )
    return found


def _is_large(spaces: Spaces, options: Options) -> bool:
    """Return whether to go block by block: if memory is short, or if the user's options ask."""
    if options.method.recompute:  # it measures the whole network again after every step
        return False
    limit = _AT_ONCE if options.memory is None else options.memory * GIB
    elsewhere = spaces.program.computes_elsewhere
    return elsewhere or options.checkpoint is not None or bytes_at_once(spaces) > limit


def _room(
    spaces: Spaces, data: CalibrationSet, options: Options, of_tokens: bool, bars: Display
) -> Room:
    """Return how a walk over the blocks is arranged, after saying how much memory it needs."""
    blocks = blocks_of(spaces)
    held = bytes_of_sensitivities(spaces, blocks) if of_tokens and options.patches else 0
    room = make_room(spaces, blocks, data.count("fit"), options.memory, held)
    bars.note(str(room))
    return room


def open_checkpoint(study: Study, options: Options, bars: Display) -> Checkpoint:
    """Return the checkpoint of a call, after saying how large it becomes."""
    if options.checkpoint is None:
        return Checkpoint()
    checkpoint = Checkpoint.open(options.checkpoint, identity(study, options))
    size, free = checkpoint_bytes(study), checkpoint.free_bytes()
    bars.note(
        f"The checkpoint in {options.checkpoint} takes up to {size / GIB:.2f} GiB; "
        f"{free / GIB:.2f} GiB are free there"
    )
    return checkpoint


def describe_in_config(study: Study, network: Network) -> None:
    """Let the config of the smaller network say its widths, if it can."""
    widths = network.plan.widths
    if network.ranks or not network.plan.kept or not has_config(study.original):
        return
    config = getattr(study.original, "config", None)
    for group in groups_of_blocks(study.spaces):  # finding out what a config can say takes time
        if len({widths.get(name) for name in group}) > 1 and not has_lists(config):
            return
    assert study.config_groups is not None
    with contextlib.suppress(ArgumentError):  # `save_pretrained` says why it cannot
        values = config_values(study.spaces, study.config_groups, widths)
        update_config(network.model, values, two_examples(study.spaces.program))


def state_problem(
    study: Study,
    orders: Orders,
    effects: Effects | None,
    options: Options,
    *,
    allocation: str | None = None,
    resource: str | None = None,
) -> Problem:
    """Return the problem as an allocation sees it; by default the first of the method's.

    `resource` overrides what the budget saves.
    """
    allocation = allocation or options.method.candidates[0]
    if resource is None:
        resource = "flops" if options.budget is None else options.budget.rule.resource
    allowed = {name: options.limits.widths(study.spaces[name]) for name in orders}
    if options.limits.same_widths:
        allowed = study.loadable_widths(allowed)
    problem = Problem(
        study.spaces,
        orders,
        ALLOCATIONS[allocation].losses(orders, effects),
        study.spaces.cost.meter(resource),
        allowed,
        options.method.step,
        unit=DIVERGENCES if orders.are_divergences else ALLOCATIONS[allocation].unit,
    )
    return grouped(problem, study.width_groups) if options.limits.same_widths else problem


def solve(
    study: Study,
    orders: Orders,
    effects: Effects | None,
    options: Options,
    bars: Display,
    checkpoint: Checkpoint,
) -> Network:
    """Return the network that meets the budget."""
    assert options.budget is not None
    if options.lowrank:
        check_low_rank(study)
    problems: dict[str, Problem] = {}
    candidates = options.method.candidates
    if len(candidates) > 1:
        candidates = tuple(name for name in candidates if ALLOCATIONS[name].differs(study.spaces))
    for name in candidates:
        losses = ALLOCATIONS[name].losses
        same = [problems[other] for other in problems if ALLOCATIONS[other].losses is losses]
        problems[name] = (
            same[0] if same else state_problem(study, orders, effects, options, allocation=name)
        )
    search = Search(study, problems, options.method, options.memory, bars, checkpoint)
    if options.method.recompute:
        network = literal_iterative_id(study, search.problem, options.budget.value, bars)
    elif options.lowrank:
        # errors that are scaled to measured effects compare ranks with channels best
        allocation = "marginal" if effects is None else "measured"
        problem = state_problem(study, orders, effects, options, allocation=allocation)
        rule, value = options.budget.rule, options.budget.value
        network = solve_low_rank(search, problem, options, lambda: rule.solve(search, value))
    else:
        network = options.budget.rule.solve(search, options.budget.value)
    return replace(network, warnings=warn_about(search, network))

"""`analyze()` and `compress()`: the steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from interpress.analysis import Analysis, check_memory, checked_limits, checked_method, checked_step
from interpress.budgets.budget import Budget
from interpress.calibration.calibrate import calibrate
from interpress.data.calibration_set import CalibrationSet
from interpress.data.sources import Forward
from interpress.dryrun.find import find_spaces
from interpress.errors import ArgumentError
from interpress.evaluation.output_meaning import Kind, find_meaning
from interpress.graph.model_state import untouched, unwrap
from interpress.pipeline.study import Study
from interpress.progress import bars
from interpress.result import Result
from interpress.spaces.spaces import Spaces


def analyze(
    model: nn.Module,
    calibration: Any,
    *,
    exclude: Sequence[str] = (),
    forward: Forward | None = None,
    kind: Kind = "auto",
    patches: bool = True,
    memory: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> Analysis:
    """Run a model over unlabelled data once; the result answers any number of budgets.

    `calibration`, `exclude`, `forward`, `kind`, `memory` and `seed` as for `compress`.
    `patches=False` leaves out what only the selection "patches" needs, which is most of the cost.
    """
    network = unwrap(model)
    check_memory(memory)
    with untouched(network):
        return _analyzed(
            network, calibration, exclude, forward, kind, patches, memory, seed, progress
        )


def _analyzed(
    network: nn.Module,
    calibration: Any,
    exclude: Sequence[str],
    forward: Forward | None,
    kind: Kind,
    patches: bool,
    memory: float,
    seed: int,
    progress: bool | None,
) -> Analysis:
    data = CalibrationSet(calibration, network, forward=forward, seed=seed)
    data.check_stable()
    example = data.first()
    spaces = find_spaces(network, example, exclude=exclude, progress=progress)
    _check_shrinkable(spaces)
    judge = find_meaning(network, example, kind)
    with bars(progress) as places, places.job("calibrating", data.size()) as advance:
        seen = calibrate(
            spaces,
            data.batches("fit"),
            patches=patches,
            judge=judge,
            expected=data.expected(),
            seed=seed,
            done=lambda examples: advance(1),
        )
    seen.data = data.fingerprint()
    knowledge = Study(spaces, seen, data, judge, seed)
    return Analysis(knowledge, seed=seed, memory=memory)


def compress(
    model: nn.Module,
    calibration: Any,
    *,
    flops: float | None = None,
    params: float | None = None,
    latency: float | None = None,
    agreement: float | None = None,
    error: float | None = None,
    width: float | None = None,
    method: str = "preserve",
    selection: str | None = None,
    allocation: str | None = None,
    refit: bool | None = None,
    correct: bool | None = None,
    balance: bool | None = None,
    recompute: bool = False,
    step: float = 0.05,
    exclude: Sequence[str] = (),
    round_to: int = 1,
    min_width: int = 1,
    forward: Forward | None = None,
    kind: Kind = "auto",
    memory: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Make a trained network smaller while it keeps making the same decisions.

    Give exactly one budget: `flops`, `params` or `latency` (the fraction to keep; latency is
    measured on this device), `agreement` (the smallest network that still decides like the original
    on this share of held-out examples), `error` (largest relative error per layer, certified) or
    `width` (the fraction of every layer).

    `calibration` is unlabelled data as the model would see it: a tensor, a DataLoader, or any
    iterable of tensors, tuples (inputs first, labels ignored) or dicts; `forward(model, batch)`
    calls the model where it must be called in another way. One example of five is held out and
    never fitted to. `method` is "preserve", "iterative-id" or "constant-id"; `selection`,
    `allocation` and `refit` replace one part of it, `correct=False` drops channels without making
    up for them (as baselines do), `balance=False` lets every example count alike in the refit,
    however seldom the like of it is decided; `step`, `recompute` belong to "iterative-id".
    `exclude` names layers to leave alone (patterns), `round_to` makes widths multiples, `min_width`
    bounds them below, `memory` (GiB) bounds what the refit holds at once, `kind` says what the
    output means where its shape does not. The model is left as it was.
    """
    options: dict[str, Any] = {
        "flops": flops, "params": params, "latency": latency,
        "agreement": agreement, "error": error, "width": width,
    }  # fmt: skip
    budget = Budget.of(options)  # say what is wrong before anything is run
    checked_limits(round_to, min_width)
    checked_step(step)
    chosen = checked_method(method, selection, allocation, refit, correct, balance, budget)
    analysis = analyze(
        model,
        calibration,
        exclude=exclude,
        forward=forward,
        kind=kind,
        patches=chosen.selection == "patches",
        memory=memory,
        seed=seed,
        progress=progress,
    )
    return analysis.compress(
        **options,
        method=method,
        selection=selection,
        allocation=allocation,
        refit=refit,
        correct=correct,
        balance=balance,
        recompute=recompute,
        step=step,
        round_to=round_to,
        min_width=min_width,
        progress=progress,
    )


def _check_shrinkable(spaces: Spaces) -> None:
    if spaces.shrinkable:
        return
    reasons = "; ".join(f"{space.name}: {space.frozen}" for space in spaces.frozen[:3])
    raise ArgumentError(
        f"nothing in this model can shrink: all {len(spaces)} spaces are frozen ({reasons}); print "
        "interpress.find_spaces(model, example) for all reasons, or exclude less"
    )

"""`build`: cut a network to a plan, prove it, refit it, and keep whichever is better."""

from __future__ import annotations

import torch
from torch import nn

from interpress.allocation.plan import Plan
from interpress.calibration.sample_weights import draw_examples
from interpress.calibration.study import Study
from interpress.errors import DataError
from interpress.evaluation.tally import Agreement
from interpress.method import Method
from interpress.network.network import Network
from interpress.progress import Display
from interpress.refit.refit import RefitResult, examples_needed, refit
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolations
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import copy_with, shrunk_copy

_SHARE_FOR_VALUES = 0.8  # of the memory for activations; the rest is for sampled rows
_FEWEST_EXAMPLES = 16  # in a refit, whatever the memory
_EXAMPLES_PER_BATCH = 200  # in a refit, at most


def build(
    study: Study, plan: Plan, method: Method, bars: Display, *, memory: float = 1.0
) -> Network:
    """Return the network of a plan; the refit may hold `memory` GiB."""
    kept = plan.kept
    if method.correct:
        check_rows(study, plan)
        T = interpolations(study.spaces, kept, study.statistics.factors)
    else:
        T = {}
    cut = Cut(study.spaces, kept, T)
    corrected = shrunk_copy(cut)
    proof = check(study.spaces, cut, corrected)
    if not method.refit or not kept:
        agreement = None if study.data is None else study.evaluator().agreement(corrected)
        return Network(corrected, plan, cut, proof, agreement)
    solved = _refit(study, cut, corrected, method, bars, memory)
    if not solved.weights:
        agreement = study.evaluator().agreement(corrected)
        return Network(corrected, plan, cut, proof, agreement, solved)
    refitted = copy_with(corrected, solved.weights)
    before, after = study.evaluator().agreements(corrected, refitted)
    if held_out_loss(after) < held_out_loss(before):
        return Network(refitted, plan, cut, proof, after, solved, refit_kept=True)
    return Network(corrected, plan, cut, proof, before, solved)


def held_out_loss(agreement: Agreement) -> float:
    """Return the loss that a refit must lower on held-out data to be kept.

    We use the mean of sqrt(KL): with about 200 held-out examples the mean KL is dominated by a few
    outliers.
    """
    if agreement.distance is not None:
        return agreement.distance
    if agreement.output_error is not None:
        return agreement.output_error
    return 1.0 - float(agreement)


def check_rows(study: Study, plan: Plan) -> None:
    """Refuse to keep more columns than there were rows to fit the others from."""
    for name, width in plan.widths.items():
        profile = plan.orders.profiles[name]
        if width == profile.space.size:
            continue
        for view in profile.views:
            rows, wanted = view.factor.rows, width * view.per_unit
            if rows < wanted:
                per_example = max(1.0, rows / max(study.statistics.examples, 1))
                missing = (wanted - rows) / per_example
                raise DataError(
                    f"space {name!r} keeps {wanted} columns at {view.tap!r}, but the calibration "
                    f"data gave only {rows} rows there; give at least {int(-(-missing * 5 // 4))} "
                    f"more examples, or leave it whole with "
                    f"exclude={_consumer_modules(study.spaces, view.tap)}"
                )


def _consumer_modules(spaces: Spaces, tap: str) -> list[str]:
    """Return the modules that read a tap; excluding them keeps all of its channels."""
    weights = [absorber.weight for absorber in spaces.taps[tap].absorbers]
    return sorted({name.rpartition(".")[0] for name in weights})


def _refit(
    study: Study, cut: Cut, corrected: nn.Module, method: Method, bars: Display, memory: float
) -> RefitResult:
    """Refit on as many examples as the memory allows and the layers need."""
    spaces, data = study.spaces, study.require_data()
    both_networks = max(1, 2 * spaces.cost.peak_bytes() // captured_examples(spaces))
    affordable = int(_SHARE_FOR_VALUES * memory * 2**30) // both_networks
    count = min(max(_FEWEST_EXAMPLES, affordable), examples_needed(spaces.program))
    weights = study.sample_weights() if method.balance else torch.ones(study.fit_examples)
    chosen, sample_weights = draw_examples(weights, count, study.seed)
    limit = examples_per_batch(spaces, data.device) or _EXAMPLES_PER_BATCH
    examples = data.examples_at("fit", chosen, min(limit, _EXAMPLES_PER_BATCH))
    operators = sum(1 for _ in spaces.program.operators())
    with bars.task("refitting", operators) as advance:
        return refit(
            cut, corrected, examples, sample_weights=sample_weights, seed=study.seed, done=advance
        )

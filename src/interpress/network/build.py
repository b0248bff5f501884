"""`build`: cut a network to a plan, prove it, refit it, and keep whichever is better."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.files.checkpoint import Checkpoint
from interpress.method import Method
from interpress.network.build_by_block import build_by_block
from interpress.network.compare import CutNetwork, cut_of, is_enough_held_out
from interpress.network.network import Network
from interpress.network.refit_examples import refit_examples
from interpress.progress import Display
from interpress.refit.refit import RefitResult, refit
from interpress.refit.thin_layer import ThinLayer
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import copy_with, shrunk_copy


def build(
    study: Study,
    plan: Plan,
    method: Method,
    bars: Display,
    *,
    memory: float | None = None,
    checkpoint: Checkpoint | None = None,
    known: CutNetwork | None = None,
) -> Network:
    """Return the network of a plan; the refit may hold `memory` GiB.

    `known` is the network before the refit, if the plan was compared with others.
    """
    kept = plan.kept
    refits = method.refit and bool(kept)
    if study.walk is not None:
        examples = refit_examples(study, method, memory) if refits else None
        network = build_by_block(study, plan, method, examples, bars, checkpoint or Checkpoint())
        if network is not None:
            return network
    if known is not None:
        cut, corrected, agreement = known
    else:
        cut, agreement = cut_of(study, plan, method), None
        corrected = shrunk_copy(cut)
    proof = check(study.spaces, cut, corrected)
    if not refits:
        if agreement is None and study.data is not None:
            agreement = study.evaluator().agreement(corrected)
        return Network(corrected, plan, cut, proof, agreement)
    solved = refit_cut(study, cut, corrected, method, bars, memory=memory)
    if not solved.weights:
        if agreement is None:
            agreement = study.evaluator().agreement(corrected)
        return Network(corrected, plan, cut, proof, agreement, solved)
    refitted = copy_with(corrected, solved.weights)
    if agreement is None:
        before, after = study.evaluator().agreements(corrected, refitted)
    else:
        before, after = agreement, study.evaluator().agreement(refitted)
    if is_better(study, corrected, refitted, held_out_loss(before), held_out_loss(after)):
        return Network(refitted, plan, cut, proof, after, solved, refit_kept=True)
    return Network(corrected, plan, cut, proof, before, solved)


def is_better(
    study: Study, corrected: nn.Module, refitted: nn.Module, before: float, after: float
) -> bool:
    """Return whether the refit lowered the loss.

    Held-out examples decide if there are enough. A few of them decide at random, so then all
    examples do: every layer was already judged on rows that it was not fitted to.
    """
    if is_enough_held_out(study):
        return after < before
    losses = [held_out_loss(a) for a in study.evaluator("all").agreements(corrected, refitted)]
    return losses[1] < losses[0]


def refit_cut(
    study: Study,
    cut: Cut,
    corrected: nn.Module,
    method: Method,
    bars: Display,
    *,
    memory: float | None,
    thin: Mapping[str, ThinLayer] | None = None,
) -> RefitResult:
    """Return new weights of a network that was cut; `thin` has the layers that become two."""
    chosen = refit_examples(study, method, memory)
    operators = sum(1 for _ in study.spaces.program.operators())
    with bars.task("refitting", operators) as advance:
        return refit(
            cut,
            corrected,
            chosen.examples,
            sample_weights=chosen.weights,
            seed=study.seed,
            row_weights=None if study.meaning.tokens is None else study.row_weights(),
            thin=thin,
            recorded=chosen.recorded,
            done=advance,
        )

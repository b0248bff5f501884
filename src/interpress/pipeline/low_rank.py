"""Low rank as a second kind of cut: a budget split between channels and ranks.

How much the predicted loss of a rank counts in comparison with that of dropped channels is chosen
on held-out examples, before the refit. The best split is built and refitted. The network whose
channels alone were dropped is returned if it is better on held-out examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import nn

from interpress.allocation.problem import Problem
from interpress.budgets.search import Search
from interpress.calibration.study import Study
from interpress.data.batches import batch_size, take
from interpress.errors import ArgumentError
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.latency import latency_ratio
from interpress.lowrank.layers import FactorableLayer, factorable_layers
from interpress.lowrank.record import LowRank
from interpress.lowrank.spectra import Spectra, measure_spectra
from interpress.lowrank.split import Split, split_budget
from interpress.network.build_low_rank import build_low_rank, first_network
from interpress.network.compare import is_enough_held_out
from interpress.network.network import Network
from interpress.pipeline.options import Options
from interpress.progress import Display

PRICES = (1.0, 0.3, 0.1, 0.03)
"""What the predicted loss of a rank counts, relative to that of dropped channels. On VGG-16
(CIFAR-10), 0.1 to 0.5 is best: the refit makes up for more of what a rank loses."""
_EXAMPLES = 1024
"""Examples to measure outputs on: enough rows for layers that give one row per example."""
_TIMED = 8
"""Examples in a batch whose run time is measured."""
_ROUNDS = 3
_LEAST_SHARE = 0.01
"""Share of the FLOPs, or of the parameters, below which a layer stays one: its run time would
double, and hardly anything be saved."""


def check_low_rank(study: Study) -> None:
    """Raise if this network cannot be measured for low rank."""
    if study.walk is not None:
        raise ArgumentError(
            "lowrank=True needs a network that is measured at once, but this one goes block by "
            "block; leave out lowrank=, or else memory=, device= and checkpoint=. A network whose "
            "statistics take more than 4 GiB always goes block by block"
        )
    study.require_data()


def solve_low_rank(
    search: Search, problem: Problem, options: Options, solve: Callable[[], Network]
) -> Network:
    """Return a network within the budget in which some layers became two, if that is better.

    `solve` returns the network of channels alone. If these cannot meet the budget, low rank may.
    """
    try:
        alone = solve()
    except ArgumentError:
        network = _with_low_rank(search, problem, None, options)
        if network is None:
            raise
        return network
    network = _with_low_rank(search, problem, alone, options)
    assert network is not None
    return network


def _with_low_rank(
    search: Search, problem: Problem, alone: Network | None, options: Options
) -> Network | None:
    """Return the better network; None if there is neither one of low rank nor one without."""
    study, budget = search.study, options.budget
    assert budget is not None
    resource = budget.rule.resource
    layers = _worthwhile(study, factorable_layers(study.spaces.program, options.exclude), resource)
    if not layers:
        reason = "no layer of this network can become two at a gain"
        return None if alone is None else replace(alone, low_rank=LowRank(reason=reason))
    spectra = _spectra(study, layers, search.bars)
    splits = _splits(search, problem, spectra, budget.value, resource)
    if not splits:
        reason = "dropping channels is predicted to lose less everywhere"
        return None if alone is None else replace(alone, low_rank=LowRank(reason=reason))
    best = _best_split(search, problem, spectra, splits)
    plan = problem.plan(best.widths)
    network = build_low_rank(
        study, plan, best.ranks, spectra, search.method, search.bars, memory=search.memory
    )
    return _better(search, alone, network)


def _worthwhile(
    study: Study, layers: list[FactorableLayer], resource: str
) -> list[FactorableLayer]:
    """Return the layers that have a considerable share of the FLOPs or parameters."""
    whole = study.spaces.cost.meter(resource).total({})
    of_flops = resource == "flops"

    def share(layer: FactorableLayer) -> float:
        weights = layer.dense.shape[0] * layer.dense.unknowns
        return (2 * layer.positions if of_flops else 1) * weights / whole

    return [layer for layer in layers if share(layer) >= _LEAST_SHARE]


def _spectra(study: Study, layers: list[FactorableLayer], bars: Display) -> Spectra:
    examples = study.require_data().batches("fit", limit=_EXAMPLES)
    with bars.task("measuring outputs", None):
        return measure_spectra(
            study.spaces.program, layers, examples, seed=study.seed, alone=study.fit_examples == 1
        )


def _splits(
    search: Search, problem: Problem, spectra: Spectra, fraction: float, resource: str
) -> list[Split]:
    """Return the different splits of the budget in which some layer becomes two."""
    untrusted = problem.orders.untrusted if search.method.needs_trust else {}
    splits: list[Split] = []
    for price in PRICES:
        split = _split(problem.sparing(untrusted), spectra, fraction, resource, price)
        if split is None and untrusted:
            split = _split(problem, spectra, fraction, resource, price)
        if split is not None and split.ranks and split not in splits:
            splits.append(split)
    return splits


def _split(
    problem: Problem, spectra: Spectra, fraction: float, resource: str, price: float
) -> Split | None:
    try:
        return split_budget(problem, spectra, fraction, resource, price=price)
    except ArgumentError:  # the budget cannot be reached without the spaces that are spared
        return None


def _best_split(search: Search, problem: Problem, spectra: Spectra, splits: list[Split]) -> Split:
    """Return the split whose network loses least before the refit."""
    if len(splits) == 1:
        return splits[0]
    with search.bars.task("comparing ranks", len(splits)) as advance:
        losses = []
        for split in splits:
            plan = problem.plan(split.widths)
            network = first_network(search.study, plan, split.ranks, spectra, search.method)
            losses += _losses(search.study, network)
            advance(1)
    return splits[losses.index(min(losses))]


def _better(search: Search, alone: Network | None, network: Network) -> Network:
    """Return the better of two networks for the same budget, with a record of the comparison."""
    study = search.study
    assert network.low_rank is not None
    if alone is None:
        timed = replace(network.low_rank, latency=(_latency(study, network), None))
        return replace(network, low_rank=timed)
    before, after = _losses(study, alone.model, network.model)
    losses: Mapping[str, float] = {"channels alone": before, "low rank": after}
    if not after < before:
        reason = "no gain on held-out examples, so no layer became two"
        return replace(alone, low_rank=LowRank(losses=losses, reason=reason))
    latency = _latency(study, network), _latency(study, alone)
    return replace(
        network,
        comparison=alone.comparison,
        low_rank=replace(network.low_rank, losses=losses, latency=latency),
    )


def _losses(study: Study, *networks: nn.Module) -> list[float]:
    """Return the losses on held-out examples, or on all examples if those are few."""
    evaluator = study.evaluator("held" if is_enough_held_out(study) else "all")
    return [held_out_loss(one) for one in evaluator.agreements(*networks)]


def _latency(study: Study, network: Network) -> float:
    example = next(iter(study.require_data().batches()))
    few = take(example, torch.arange(min(_TIMED, batch_size(example)))).at_home(study.original)
    return latency_ratio(network.model, study.original, few, rounds=_ROUNDS)

"""Build a network in which channels were dropped and layers became two, and prove both steps."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.errors import SurgeryError
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.tally import Agreement
from interpress.linalg.low_rank import Factors
from interpress.lowrank.layers import FactorableLayer
from interpress.lowrank.record import LowRank, ThinPair
from interpress.lowrank.spectra import Spectra
from interpress.lowrank.start import first_factors
from interpress.method import Method
from interpress.network.build import is_better, refit_cut
from interpress.network.network import Network
from interpress.progress import Display
from interpress.refit.thin_layer import ThinLayer
from interpress.surgery.cut import Cut
from interpress.surgery.product_identity import prove_products
from interpress.surgery.projection_identity import Proof, check
from interpress.surgery.thin_layers import factored_copy
from interpress.surgery.weights import copy_with, shrunk_copy


def build_low_rank(
    study: Study,
    plan: Plan,
    ranks: Mapping[str, int],
    spectra: Spectra,
    method: Method,
    bars: Display,
    *,
    memory: float | None = None,
) -> Network:
    """Return the network of a plan in which the named layers became two thin ones."""
    cut, corrected = _cut(study, plan, method)
    proof = check(study.spaces, cut, shrunk_copy(cut))
    thin = first_factors(spectra, cut, corrected, ranks)
    begun = _begun(corrected, thin)
    solved, best, kept = None, begun, False
    agreement = None if study.data is None else study.evaluator().agreement(begun.network)
    if method.refit:
        solved = refit_cut(study, cut, corrected, method, bars, memory=memory, thin=thin)
        if solved.skipped is None:
            refitted = _Candidate(copy_with(corrected, solved.weights), solved.factors)
            best, agreement = _better(study, begun, refitted)
            kept = best is refitted
    low_rank = LowRank(_pairs(spectra, best, ranks), _proved(study, best))
    return Network(
        best.network, plan, cut, proof, agreement, solved, refit_kept=kept, low_rank=low_rank
    )


def first_network(
    study: Study, plan: Plan, ranks: Mapping[str, int], spectra: Spectra, method: Method
) -> nn.Module:
    """Return the network of a plan with its first factors: not refitted, and not proved."""
    cut, corrected = _cut(study, plan, method)
    return _begun(corrected, first_factors(spectra, cut, corrected, ranks)).network


def _cut(study: Study, plan: Plan, method: Method) -> tuple[Cut, nn.Module]:
    """Return the cut of a plan, and its network."""
    T = study.interpolations(plan.kept, regularize=method.regularize) if method.correct else {}
    cut = Cut(study.spaces, plan.kept, T)
    return cut, shrunk_copy(cut)


class _Candidate:
    """A network with layers of low rank: as one layer each, and as two."""

    def __init__(self, whole: nn.Module, factors: Mapping[str, Factors]) -> None:
        self.whole = whole
        self.factors = {name.removesuffix(".weight"): pair for name, pair in factors.items()}
        self.network = factored_copy(whole, self.factors)


def _begun(corrected: nn.Module, thin: Mapping[str, ThinLayer]) -> _Candidate:
    """Return a network with the first factors of its layers."""
    start = {name: value for layer in thin.values() for name, value in layer.start.items()}
    factors = {weight: layer.factors for weight, layer in thin.items()}
    return _Candidate(copy_with(corrected, start), factors)


def _better(
    study: Study, begun: _Candidate, refitted: _Candidate
) -> tuple[_Candidate, Agreement | None]:
    """Return the better of two networks, with its agreement on held-out examples."""
    before, after = study.evaluator().agreements(begun.network, refitted.network)
    losses = held_out_loss(before), held_out_loss(after)
    if is_better(study, begun.network, refitted.network, *losses):
        return refitted, after
    return begun, before


def _proved(study: Study, candidate: _Candidate) -> Proof:
    proof = prove_products(study.spaces, candidate.whole, candidate.network, candidate.factors)
    if not proof:
        raise SurgeryError(
            f"the network with two thin layers in the place of one differs by "
            f"{proof.difference:.1e} from the one with their products, but at most "
            f"{proof.tolerance:.0e} is allowed; compress with lowrank=False, and report this"
        )
    return proof


def _pairs(
    spectra: Spectra, candidate: _Candidate, ranks: Mapping[str, int]
) -> tuple[ThinPair, ...]:
    return tuple(
        _pair(layer, candidate.factors[layer.name])
        for layer in spectra.layers
        if layer.name in ranks
    )


def _pair(layer: FactorableLayer, factors: Factors) -> ThinPair:
    (outputs, rank), inputs = factors.A.shape, factors.B.shape[1]
    itemsize = factors.A.element_size()
    return ThinPair(layer.name, rank, outputs, inputs, layer.positions, itemsize)

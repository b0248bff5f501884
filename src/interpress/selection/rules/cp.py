"""Baseline: channel pruning by LASSO (CP, He, Zhang and Sun, ICCV 2017).

Let `Y = sum_i X_i @ W_i` be the output of a consumer, where `X_i` are the inputs from channel i. CP
chooses channels by

    min over b of  ||Y - sum_i b_i * X_i @ W_i||_F ** 2 / 2 + penalty * sum_i ||W_i||_F * |b_i|

(the publication scales every `W_i` to norm 1 instead), and raises the penalty until few enough
`b_i` are left. Then it re-solves the consumer by least squares, front to back, towards the outputs
of the original. Adapted: one path of penalties orders all channels, so kept channels are nested,
and the second step is the refit of interpress (`Method(selection="cp", refit=True)`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection
from interpress.selection.rules.thinet import contribution_gram

_PENALTIES = 40
_SMALLEST = -4.0  # logarithm of the smallest penalty relative to the one that leaves no channel
_SMALLEST_NORM = 1e-3  # relative to the largest, for weights that are practically zero
_STEPS = 200  # of the solver at every penalty, from the solution at the one before
_CHANGE = 1e-8  # change of a step, relative to the solution, at which the solver stops


@selection("cp")
def cp(profile: Profile) -> Ranking:
    """Keep longest the channels whose LASSO coefficients are the last to become zero."""
    norms = torch.zeros(profile.space.size, dtype=torch.float64)
    for view in profile.views:
        squares = view.summed_by_unit(view.H.diagonal()).double().cpu()
        norms += squares / squares.sum().clamp(min=1e-300)
    return ranked(lasso_scores(contribution_gram(profile), norms.sqrt()))


def lasso_scores(C: Tensor, norms: Tensor) -> Tensor:
    """Return, per channel, at how many penalties its coefficient is not zero.

    `C` has the products of the channels' contributions `X_i @ W_i`. Among equals, larger
    coefficients score higher.
    """
    largest = float(norms.max())
    norms = (norms / largest).clamp(min=_SMALLEST_NORM) if largest > 0 else torch.ones_like(norms)
    A = C / torch.outer(norms, norms)  # of contributions scaled to norm 1
    correlations = A @ norms
    largest = float(correlations.abs().max())
    scores = torch.zeros_like(norms)
    if largest <= 0:
        return scores
    curvature = float(torch.linalg.matrix_norm(A, 2))
    coefficients, sizes = torch.zeros_like(norms), torch.zeros_like(norms)
    for penalty in torch.logspace(0, _SMALLEST, _PENALTIES + 1, dtype=torch.float64)[1:].tolist():
        coefficients = _lasso(A, correlations, penalty * largest, curvature, coefficients)
        scores += coefficients != 0
        sizes += coefficients.abs()
    return scores + sizes / (2 * sizes.max().clamp(min=1e-300))


def _lasso(A: Tensor, b: Tensor, penalty: float, curvature: float, start: Tensor) -> Tensor:
    """Return the minimum of `x @ A @ x / 2 - b @ x + penalty * ||x||_1` by FISTA with restarts."""
    x, ahead, momentum = start, start, 1.0
    for _ in range(_STEPS):
        moved = ahead - (A @ ahead - b) / curvature
        following = moved.sign() * (moved.abs() - penalty / curvature).clamp(min=0)
        if float((ahead - following) @ (following - x)) > 0:  # the momentum leads uphill
            momentum = 1.0
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = following + (momentum - 1) / grown * (following - x)
        change, x, momentum = float((following - x).abs().max()), following, grown
        if change <= _CHANGE * float(x.abs().max()):
            break
    return x

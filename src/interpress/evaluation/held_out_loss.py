"""The loss by which networks for the same budget are compared."""

from __future__ import annotations

from interpress.evaluation.tally import Agreement


def loss_name(agreement: Agreement | None) -> str:
    """Return what `held_out_loss` is, in words, for agreements of this kind."""
    if agreement is None:
        return "loss"
    if agreement.others:
        return "loss of all outputs"
    if agreement.distance is not None:
        return "mean √KL"
    return "output error" if agreement.output_error is not None else "share of changed decisions"


def held_out_loss(agreement: Agreement) -> float:
    """Return what a better network lowers on examples that it was not fitted to.

    We use the mean of sqrt(KL): with about 200 held-out examples the mean KL is dominated by a few
    outliers.

    With several outputs it is `loss / (1 + loss)` of the deciding one plus the mean of the others'
    relative errors. The first term is at most 1. So no gain in the deciding output pays for another
    one that goes from nearly exact to the error of predicting the mean, which is 1.
    """
    if agreement.distance is not None:
        loss = agreement.distance
    elif agreement.output_error is not None:
        loss = agreement.output_error
    else:
        loss = 1.0 - float(agreement)
    if not agreement.others:
        return loss
    others = [output.loss for output in agreement.others]
    return loss / (1 + loss) + sum(others) / len(others)

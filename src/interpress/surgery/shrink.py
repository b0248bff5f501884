"""`shrink`: a smaller copy of a network, proved by the projection identity."""

from __future__ import annotations

from torch import nn

from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut, Interpolations, Kept
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import shrunk_copy


def shrink(
    spaces: Spaces, kept: Kept, T: Interpolations | None = None, *, verify: bool = True
) -> nn.Module:
    """A smaller copy of the network: `kept` channels per space, `T` per tap.

    Spaces that are not named stay whole. A tap without a `T` loses its dropped channels without
    compensation. The result is proved on the example by the projection identity, unless `verify`
    is False; one that cannot be proved is an error, not a result.
    """
    cut = Cut(spaces, kept, T)
    smaller = shrunk_copy(cut)
    if verify:
        check(spaces, cut, smaller)
    return smaller

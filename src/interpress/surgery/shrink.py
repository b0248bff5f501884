"""`shrink`: return a smaller copy of a network, checked by the projection identity."""

from __future__ import annotations

import torch
from torch import nn

from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut, Interpolations, Kept
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import shrunk_copy


def shrink(
    spaces: Spaces, kept: Kept, T: Interpolations | None = None, *, verify: bool = True
) -> nn.Module:
    """Return a smaller copy of the network with the `kept` channels of each named space.

    Spaces that are not named keep all their channels. `T` maps taps to interpolation matrices; a
    tap without one loses its removed channels without compensation. The result is checked on the
    example by the projection identity, and `SurgeryError` is raised if it fails. `verify=False`
    skips the check.
    """
    with torch.inference_mode(False):
        cut = Cut(spaces, kept, T)
        smaller = shrunk_copy(cut)
        if verify:
            check(spaces, cut, smaller)
    return smaller

"""How many rows the regression of a layer takes."""

from __future__ import annotations

import math

from interpress.graph.dense import DenseLayer
from interpress.refit.normal_equations import LARGE

_ROWS = 8192  # rows of a regression with few unknowns
_WORK = 2_000_000  # rows times unknowns: larger regressions gain less, and get fewer rows, but
_FEWEST_ROWS = 4096  # at least this many plus one per unknown
_NUMBERS_OF_TOKENS = 2**28  # inputs and outputs of a language model's regression: 1 GiB
_ROWS_GROUPED = 2048  # of a grouped convolution, whose groups have few unknowns


def sample_size(dense: DenseLayer, of_tokens: bool) -> int:
    """Return how many rows of all examples a layer is solved for."""
    if dense.groups > 1:
        return _ROWS_GROUPED
    unknowns = dense.unknowns
    if math.prod(dense.shape[2:]) > 1:  # a large kernel is solved along fewer directions
        unknowns = min(unknowns, LARGE)
    wanted = max(min(_ROWS, _WORK // unknowns), _FEWEST_ROWS + unknowns)
    if of_tokens:
        wanted = max(wanted, _NUMBERS_OF_TOKENS // (dense.unknowns + dense.shape[0]))
    return wanted

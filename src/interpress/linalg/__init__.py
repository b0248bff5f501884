"""Column selection for tall matrices whose rows arrive in batches.

This package works on plain tensors: it knows no `nn.Module` and no file. The steps are:

1. a :class:`FactorStream` accumulates the rows of `Z` and returns an :class:`RFactor`;
2. an ordering function (`order_by_pivoting`, `order_by_weights`, `order_as_given`) turns the
   factor into a :class:`ColumnOrdering`;
3. the ordering returns an :class:`Interpolation`, `Z ~= Z[:, kept] @ T`, for any k.
"""

from interpress.linalg.factor import RFactor
from interpress.linalg.interpolation import Interpolation
from interpress.linalg.interpolative import column_ordering, interpolative_decomposition
from interpress.linalg.ordering import ColumnOrdering, SvdBound
from interpress.linalg.pivoting import order_as_given, order_by_pivoting, order_by_weights
from interpress.linalg.stream import FactorStream

__all__ = [
    "ColumnOrdering",
    "FactorStream",
    "Interpolation",
    "RFactor",
    "SvdBound",
    "column_ordering",
    "interpolative_decomposition",
    "order_as_given",
    "order_by_pivoting",
    "order_by_weights",
]

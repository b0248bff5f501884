"""Factorizations of tall matrices from streamed rows. Pure tensors: no ``nn.Module`` in here.

Rows go into a :class:`FactorStream`, an :class:`RFactor` comes out, an ordering function turns it
into an :class:`ColumnOrdering`, and that answers with an :class:`Interpolation` for any k.
"""

from interpress.linalg.factor import RFactor
from interpress.linalg.interpolation import Interpolation
from interpress.linalg.interpolative import column_ordering, interpolative_decomposition
from interpress.linalg.ordering import ColumnOrdering, SvdBound
from interpress.linalg.pivoting import order_as_given, order_by_pivoting, order_by_weights
from interpress.linalg.stream import FactorStream

__all__ = [
    "FactorStream",
    "Interpolation",
    "ColumnOrdering",
    "RFactor",
    "SvdBound",
    "column_ordering",
    "interpolative_decomposition",
    "order_as_given",
    "order_by_pivoting",
    "order_by_weights",
]

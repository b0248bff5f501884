"""How channels are chosen: one file per ordering, and the named methods made of them."""

from interpress.method import METHODS, Method, method_of
from interpress.selection.orders import ChannelOrder, order_channels
from interpress.selection.registry import selections

__all__ = ["METHODS", "Method", "Order", "method_of", "order_of", "selections"]

"""How channels are chosen: one file per ordering, and the named methods made of them."""

from interpress.methods.registry import METHODS, Method, Order, method_of, order_of, selections

__all__ = ["METHODS", "Method", "Order", "method_of", "order_of", "selections"]

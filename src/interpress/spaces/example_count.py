"""How many examples the captured batch holds."""

from __future__ import annotations

from interpress.graph.program import Program


def example_count(program: Program) -> int:
    """Return the number of examples that the cost of a program counts."""
    sizes = [tensor.shape[0] for tensor in program.example.tensors() if tensor.ndim]
    return max(1, sizes[0] // 2 if program.doubled else sizes[0])

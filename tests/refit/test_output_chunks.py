"""Many outputs are solved in parts, and one part is a plain regression."""

from __future__ import annotations

import pytest
import torch

from interpress.refit import output_chunks
from interpress.refit.output_chunks import OutputChunks
from interpress.refit.regression import Regression


def problem(outputs: int) -> tuple[OutputChunks, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 1, 8, generator=generator)
    W = torch.randn(outputs, 8, generator=generator)
    target = X[:, 0] @ W.T + 0.01 * torch.randn(300, outputs, generator=generator)
    chunks = OutputChunks(
        list(X.split(100)), list(target.split(100)), [target.new_zeros(1, outputs)],
        scale=None, activation=None, shifts=True, weights=None,
    )  # fmt: skip
    return chunks, W + 0.3, torch.zeros(outputs)


def test_one_part_is_the_plain_regression() -> None:
    chunks, W0, bias = problem(12)
    plain = Regression(
        chunks.inputs, torch.cat(list(chunks.targets)), chunks.offsets[0],
        scale=None, activation=None, shifts=True,
    ).solve(W0, bias)  # fmt: skip
    solution = chunks.solve(W0, bias)
    assert solution.change is not None
    assert plain.change is not None
    assert torch.equal(solution.change, plain.change)
    assert solution.after == plain.after < plain.before


def test_parts_are_solved_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, W0, bias = problem(12)
    whole = chunks.solve(W0, bias)
    monkeypatch.setattr(output_chunks, "_FEWEST", 5)
    monkeypatch.setattr(output_chunks, "_NUMBERS", 1)
    parts = chunks.solve(W0, bias)
    assert parts.change is not None
    assert whole.change is not None
    torch.testing.assert_close(parts.change, whole.change, atol=1e-2, rtol=1e-2)
    assert parts.before == pytest.approx(whole.before)
    assert parts.after == pytest.approx(whole.after, rel=0.2)

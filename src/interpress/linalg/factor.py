"""The factor of a tap: everything the decomposition needs to know about its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.linalg.precision import check_range, gram_floor, root_floor

_PANELS = 4
_MANY = 2048  # columns, from which there are twice as many panels
_SAFE = 1e-4  # how far apart the pivots of a Gram matrix may be for it to be solved directly


@dataclass(frozen=True, eq=False)
class RFactor:
    """A stand-in for the tall matrix ``Z`` (rows x n): ``R.T @ R == Z.T @ Z``.

    It keeps whichever of two forms the rows were streamed into: ``gram`` (n x n, ``Z.T @ Z``) or
    ``root`` (any matrix with ``root.T @ root == Z.T @ Z``, which has full relative precision).
    Column pivoting, the interpolation matrix and every error are the same from either form as
    from ``Z`` itself, because all column inner products agree.
    """

    rows: int  #: how many rows of Z went in
    floor: float  #: |r_kk / r_11| below this is rounding, not data
    gram: Tensor | None = None
    root: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.gram is None) == (self.root is None):
            raise ArgumentError("RFactor needs exactly one of gram= and root=")

    @classmethod
    def from_gram(cls, gram: Tensor, rows: int, *, additions: int = 1) -> RFactor:
        """From ``Z.T @ Z``, accumulated in float64 by that many additions; not copied."""
        if gram.dtype != torch.float64 or gram.ndim != 2 or len(gram) != gram.shape[1]:
            raise ArgumentError(
                f"a Gram matrix of dtype {gram.dtype} and shape {tuple(gram.shape)}; it must be "
                "square and accumulated in float64"
            )
        check_range(gram.detach())
        return cls(rows, gram_floor(len(gram), additions, rows), gram=gram.detach())

    @classmethod
    def from_root(cls, root: Tensor, rows: int, *, additions: int = 1) -> RFactor:
        """From ``Z`` itself or a float64 factor of it, made by that many QRs; not copied."""
        if root.dtype != torch.float64 or root.ndim != 2:
            raise ArgumentError(
                f"a root of dtype {root.dtype} and shape {tuple(root.shape)}; it must be a matrix "
                "of float64"
            )
        check_range(root.detach(), squared=True)
        return cls(rows, root_floor(root.shape[1], additions), root=root.detach())

    @property
    def n(self) -> int:
        """How many columns (channels)."""
        return self._form.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the factor lives."""
        return self._form.device

    @property
    def _form(self) -> Tensor:
        form = self.gram if self.root is None else self.root
        assert form is not None
        return form

    @cached_property
    def R(self) -> Tensor:
        """Upper-triangular (at most n rows), float64, diagonal >= 0."""
        if self.root is not None:
            return triangle(self.root)
        values, vectors = torch.linalg.eigh(self.G)  # safe however close to singular G is
        return triangle(values.clamp(min=0).sqrt()[:, None] * vectors.T)

    @cached_property
    def G(self) -> Tensor:
        """``Z.T @ Z`` (n x n), float64."""
        if self.gram is not None:
            return self.gram
        assert self.root is not None
        return gram(self.root)

    def __repr__(self) -> str:
        form = "gram" if self.root is None else "root"
        return f"RFactor(n={self.n}, rows={self.rows}, form={form!r}, device='{self.device}')"


def triangle(matrix: Tensor) -> Tensor:
    """The triangular factor of an unpivoted QR, with a non-negative diagonal (so it is unique)."""
    R = torch.linalg.qr(matrix, mode="r").R
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R.dtype)
    return R * signs[:, None]


def safe_cholesky(G: Tensor) -> Tensor | None:
    """The lower factor of a Gram matrix, if that is far enough from singular to solve with."""
    if not len(G):
        return None
    lower, failed = torch.linalg.cholesky_ex(G)
    pivots = lower.diagonal()
    fine = int(failed) == 0 and float(pivots.min()) > _SAFE * float(pivots.max())
    return lower if fine else None


def add_gram(total: Tensor, rows: Tensor, *, fresh: bool = False) -> None:
    """``total += rows.T @ rows`` (``fresh``: ``total =``) in its upper block triangle.

    By column panels, which is 5/8 of the work of the full product or less; :func:`mirror` fills
    the rest.
    """
    for start, stop in _panels(rows.shape[1]):
        # (width, rows) @ (rows, n - start) -> (width, n - start)
        product = rows[:, start:stop].T, rows[:, start:]
        total[start:stop, start:].addmm_(*product, beta=0.0 if fresh else 1.0)


def mirror(total: Tensor) -> Tensor:
    """Copy the upper block triangle over the lower one, in place."""
    for start, stop in _panels(len(total)):
        total[stop:, start:stop] = total[start:stop, stop:].T
    return total


def gram(matrix: Tensor) -> Tensor:
    """``matrix.T @ matrix``."""
    total = matrix.new_empty(matrix.shape[1], matrix.shape[1])
    add_gram(total, matrix, fresh=True)
    return mirror(total)


def _panels(n: int) -> list[tuple[int, int]]:
    panels = 1 if n < 64 * _PANELS else _PANELS if n < _MANY else 2 * _PANELS
    width = -(-n // panels)
    return [(start, min(start + width, n)) for start in range(0, n, width)]

"""The factor of a tap: what the decomposition needs to know about the rows of `Z`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.linalg.precision import check_range, gram_floor, root_floor

_PANELS = 4  # column panels of a Gram matrix; fewer than 64 columns each are not worth splitting
_MANY_COLUMNS = 2048  # from here on twice as many panels, which saves more of the product
# Smallest ratio of two pivots with which a Gram matrix is solved directly: at 1e-4, the solution
# still has about eight correct digits.
_SMALLEST_PIVOT_RATIO = 1e-4


@dataclass(frozen=True, eq=False)
class RFactor:
    """A replacement for the tall matrix `Z` (rows x n): `R.T @ R == Z.T @ Z`.

    It holds one of two forms: `gram` (n x n, `Z.T @ Z`) or `root` (any matrix with
    `root.T @ root == Z.T @ Z`, which has full relative precision). Both forms give the same
    pivots, interpolation matrix and errors as `Z`, because all column inner products agree.
    """

    rows: int  #: number of rows of Z
    floor: float  #: values of |r_kk / r_11| below this are rounding errors
    gram: Tensor | None = None
    root: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.gram is None) == (self.root is None):
            raise ArgumentError("RFactor needs exactly one of gram= and root=")

    @classmethod
    def from_gram(cls, gram: Tensor, rows: int, *, additions: int = 1) -> RFactor:
        """Return the factor of `gram = Z.T @ Z`, a float64 sum of `additions` products.

        The tensor is not copied.
        """
        if gram.dtype != torch.float64 or gram.ndim != 2 or len(gram) != gram.shape[1]:
            raise ArgumentError(
                f"the Gram matrix has dtype {gram.dtype} and shape {tuple(gram.shape)}; pass a "
                "square matrix accumulated in float64"
            )
        check_range(gram.detach())
        return cls(rows, gram_floor(len(gram), additions, rows), gram=gram.detach())

    @classmethod
    def from_root(cls, root: Tensor, rows: int, *, additions: int = 1) -> RFactor:
        """Return the factor of `Z` itself, or of a float64 `R` computed by `additions` QRs.

        The tensor is not copied.
        """
        if root.dtype != torch.float64 or root.ndim != 2:
            raise ArgumentError(
                f"the root has dtype {root.dtype} and shape {tuple(root.shape)}; pass a matrix "
                "of dtype torch.float64"
            )
        check_range(root.detach(), squared=True)
        return cls(rows, root_floor(root.shape[1], additions), root=root.detach())

    @property
    def n(self) -> int:
        """Number of columns (channels)."""
        return self._form.shape[1]

    @property
    def device(self) -> torch.device:
        """Device of the factor."""
        return self._form.device

    @property
    def _form(self) -> Tensor:
        form = self.gram if self.root is None else self.root
        assert form is not None
        return form

    @cached_property
    def R(self) -> Tensor:
        """Upper-triangular factor (at most n rows), float64, diagonal >= 0."""
        if self.root is not None:
            return triangle(self.root)
        values, vectors = torch.linalg.eigh(self.G)  # works for a singular G, unlike Cholesky
        return triangle(values.clamp(min=0).sqrt()[:, None] * vectors.T)

    @cached_property
    def G(self) -> Tensor:
        """`Z.T @ Z` (n x n), float64."""
        if self.gram is not None:
            return self.gram
        assert self.root is not None
        return gram(self.root)

    def select(self, columns: Tensor) -> RFactor:
        """Return the factor of some columns, in their order."""
        if torch.equal(columns.cpu(), torch.arange(self.n)):
            return self
        index = columns.to(self.device)
        if self.gram is not None:
            return RFactor(self.rows, self.floor, gram=self.gram[index][:, index])
        assert self.root is not None
        return RFactor(self.rows, self.floor, root=self.root[:, index])

    def __repr__(self) -> str:
        form = "gram" if self.root is None else "root"
        return f"RFactor(n={self.n}, rows={self.rows}, form={form!r}, device='{self.device}')"


def triangle(matrix: Tensor) -> Tensor:
    """Return `R` of the QR decomposition, made unique by a non-negative diagonal."""
    R = torch.linalg.qr(matrix, mode="r").R
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R.dtype)
    return R * signs[:, None]


def safe_cholesky(G: Tensor) -> Tensor | None:
    """Return the lower factor of a Gram matrix, or None if it is too close to singular to solve."""
    if not len(G):
        return None
    lower, failed = torch.linalg.cholesky_ex(G)
    pivots = lower.diagonal()
    is_safe = int(failed) == 0 and (
        float(pivots.min()) > _SMALLEST_PIVOT_RATIO * float(pivots.max())
    )
    return lower if is_safe else None


def add_gram(total: Tensor, rows: Tensor, *, fresh: bool = False) -> None:
    """Compute `total += rows.T @ rows` in the upper block triangle; with `fresh`, `total =`.

    From 256 columns on, the product is computed by column panels, which takes 5/8 of the work of
    the full product or less. :func:`mirror` fills the lower block triangle.
    """
    for start, stop in _panels(rows.shape[1]):
        # (width, rows) @ (rows, n - start) -> (width, n - start)
        product = rows[:, start:stop].T, rows[:, start:]
        total[start:stop, start:].addmm_(*product, beta=0.0 if fresh else 1.0)


def mirror(total: Tensor) -> Tensor:
    """Copy the upper block triangle to the lower one, in place."""
    for start, stop in _panels(len(total)):
        total[stop:, start:stop] = total[start:stop, stop:].T
    return total


def gram(matrix: Tensor) -> Tensor:
    """Return `matrix.T @ matrix`."""
    total = matrix.new_empty(matrix.shape[1], matrix.shape[1])
    add_gram(total, matrix, fresh=True)
    return mirror(total)


def _panels(n: int) -> list[tuple[int, int]]:
    """Return the (start, stop) columns of each panel."""
    panels = 1 if n < 64 * _PANELS else _PANELS if n < _MANY_COLUMNS else 2 * _PANELS
    width = -(-n // panels)
    return [(start, min(start + width, n)) for start in range(0, n, width)]

"""A dense design matrix, read in blocks of columns that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

from epslab import _array
from epslab._array import Array, namespace_of
from epslab.likelihoods._base import Columns

# Bytes of a block of columns. A block that stays in the cache is scaled, multiplied and reduced
# while it is warm, so that a conditioning reads X twice and writes nothing of its size. Measured
# (n = 500 and 1000, one and two threads): within 5 % of the best from 1 to 2 MiB; beyond 4 MiB
# OpenBLAS splits the matrix-vector products over threads, at three times the total time.
_BLOCK_BYTES = 2 * 2**20


class DenseColumns(Columns):
    """Dense X, float64 or float32, in any memory order; never copied whole.

    A float32 X stays float32 in memory: each block is promoted as it is read, and every sum and
    factorisation is done in float64.

    Parameters
    ----------
    X : array of shape (n, d)
    """

    def __init__(self, X: Array) -> None:
        self.X = X
        self.n_rows, self.n_features = X.shape
        width = _BLOCK_BYTES // (8 * max(1, self.n_rows))
        self._width = max(64, min(width, -(-self.n_features // 2)))  # small beside a small X, too

    def weighted_gram(self, scale: Array, weights: Array) -> tuple[Array, Array]:
        """With ``W = X diag(scale)``: ``W W'`` (lower triangle) and ``W weights``."""
        xp = namespace_of(self.X)
        total = _array.empty_square(self.n_rows, self.X)
        total_fit = xp.zeros(self.n_rows, dtype=xp.float64, device=_array.device_of(self.X))
        W = None
        for lo, hi in self._blocks():
            W = _array.scaled_columns(self.X, lo, hi, scale[lo:hi], W)
            total = _array.add_gram(total, W)
            total_fit = total_fit + _array.product(W, weights[lo:hi])
        return total, total_fit

    def whitened(self, L: Array, scale: Array, a: Array) -> tuple[Array, Array]:
        """With ``V = L^-1 X diag(scale)``: the squared column norms of V, and ``V' a``."""
        norms, products = [], []
        W = None
        for lo, hi in self._blocks():
            W = _array.scaled_columns(self.X, lo, hi, scale[lo:hi], W)
            V = _array.whiten_columns(L, W)
            norms.append(_array.squared_column_norms(V))
            products.append(_array.product(V.T, a))
        xp = namespace_of(self.X)
        return xp.concat(norms), xp.concat(products)

    def cross_gram(self) -> Array:
        """``X'X`` (lower triangle): the same pass over the rows."""
        rows = DenseColumns(self.X.T)
        xp = namespace_of(self.X)
        ones = xp.ones(self.n_rows, dtype=xp.float64, device=_array.device_of(self.X))
        return rows.weighted_gram(ones, ones)[0]

    def take(self, indices: Array) -> Array:
        """The chosen columns as a dense (n, k) matrix."""
        xp = namespace_of(self.X)
        return xp.astype(xp.take(self.X, indices, axis=1), xp.float64, copy=False)

    def times(self, w: Array) -> Array:
        """``X w`` for a vector (d,) or a matrix (d, k)."""
        xp = namespace_of(self.X)
        if self.X.dtype == xp.float64:
            return _array.product(self.X, w)
        return sum(
            xp.astype(self.X[:, lo:hi], xp.float64) @ w[lo:hi, ...] for lo, hi in self._blocks()
        )

    def transposed_times(self, z: Array) -> Array:
        """``X' z`` for a vector (n,) or a matrix (n, k)."""
        xp = namespace_of(self.X)
        if self.X.dtype == xp.float64:
            return _array.product(self.X.T, z)
        return xp.concat(
            [xp.astype(self.X[:, lo:hi], xp.float64).T @ z for lo, hi in self._blocks()]
        )

    def squared_norms(self) -> Array:
        """Squared length of every column."""
        xp = namespace_of(self.X)
        return xp.concat(
            [
                _array.squared_column_norms(xp.astype(self.X[:, lo:hi], xp.float64, copy=False))
                for lo, hi in self._blocks()
            ]
        )

    def _blocks(self) -> Iterator[tuple[int, int]]:
        for lo in range(0, max(1, self.n_features), self._width):  # one empty block at d = 0
            yield lo, min(lo + self._width, self.n_features)

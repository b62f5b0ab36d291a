"""A scipy.sparse design matrix: sparse products throughout, dense only n x n and in blocks."""

from __future__ import annotations

from typing import Any

from epslab._array import Array, invert_lower, namespace_of, squared_column_norms
from epslab.likelihoods._base import Columns

_BLOCK_BYTES = 16 * 2**20


class SparseColumns(Columns):
    """Sparse X in compressed columns, float64 or float32.

    Parameters
    ----------
    X : scipy.sparse.csc_array of shape (n, d)

    Notes
    -----
    The norms of ``L^-1 x`` cost n flops per stored entry (with the inverse of L formed once) where
    a triangular solve would cost n^2 per column, whatever its sparsity.
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self.n_rows, self.n_features = X.shape

    def weighted_gram(self, scale: Array, weights: Array) -> tuple[Array, Array]:
        """With ``W = X diag(scale)``: ``W W'`` and ``W weights``."""
        W = self.X.multiply(scale[None, :]).tocsc()
        return (W @ W.T).toarray(order="F"), W @ weights

    def whitened(self, L: Array, scale: Array, a: Array) -> tuple[Array, Array]:
        """With ``V = L^-1 X diag(scale)``: the squared column norms of V, and ``V' a``."""
        xp = namespace_of(L)
        inverse_factor = invert_lower(L)
        width = max(1, _BLOCK_BYTES // (8 * self.n_rows))
        norms = []
        for lo in range(0, self.n_features, width):
            block = self.X[:, lo : lo + width]
            norms.append(squared_column_norms((block.T @ inverse_factor.T).T))
        return scale**2 * xp.concat(norms), scale * (self.X.T @ (inverse_factor.T @ a))

    def cross_gram(self) -> Array:
        """``X'X``, for d <= n."""
        columns = self.X.astype(float)
        return (columns.T @ columns).toarray(order="F")

    def take(self, indices: Array) -> Array:
        """The chosen columns as a dense (n, k) matrix."""
        return self.X[:, indices].toarray(order="F").astype(float, copy=False)

    def times(self, w: Array) -> Array:
        """``X w`` for a vector (d,) or a matrix (d, k)."""
        return self.X @ w

    def transposed_times(self, z: Array) -> Array:
        """``X' z`` for a vector (n,) or a matrix (n, k)."""
        return self.X.T @ z

    def squared_norms(self) -> Array:
        """Squared length of every column."""
        columns = self.X.astype(float)
        return columns.multiply(columns).sum(axis=0)

"""Linear algebra: BLAS and LAPACK for NumPy arrays, the standard's functions for the rest.

Matrices that come out of here for reuse (Gram matrices, Cholesky factors) are float64 and, under
NumPy, column-major, so that BLAS works on them in place. Only lower triangles carry meaning.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from epslab._array._namespace import Array, device_of, namespace_of


class NotPositiveDefinite(ArithmeticError):
    """A matrix that has to be positive definite is not."""


# ---- passes over the columns of a large matrix ------------------------------------------------


def empty_square(size: int, like: Array) -> Array:
    """A zero matrix to accumulate a Gram matrix in, float64, in the library of `like`."""
    if isinstance(like, np.ndarray):
        return np.zeros((size, size), order="F")
    xp = namespace_of(like)
    return xp.zeros((size, size), dtype=xp.float64, device=device_of(like))


def scaled_columns(X: Array, lo: int, hi: int, scale: Array, out: Array | None) -> Array:
    """Columns ``lo:hi`` of `X` times `scale`, in float64; into `out` where it fits.

    Pass the previous block as `out`: the same cache-warm memory then serves every block. The
    layout follows `X`, so that neither reading nor BLAS has to transpose.
    """
    if not isinstance(X, np.ndarray):
        xp = namespace_of(X)
        return xp.astype(X[:, lo:hi], xp.float64) * scale
    if out is None or out.shape != (X.shape[0], hi - lo):
        out = np.empty((X.shape[0], hi - lo), order="F" if X.flags.f_contiguous else "C")
    return np.multiply(X[:, lo:hi], scale, out=out)


def product(A: Array, B: Array) -> Array:
    """``A B`` for a matrix `A` and a vector or matrix `B`, by the BLAS the factorisations use.

    NumPy and SciPy each bring an OpenBLAS with threads of its own. After a product by one, its
    threads keep spinning for a while and take the cores from the other: alternating between them
    costs milliseconds a call.
    """
    if not isinstance(A, np.ndarray) or A.dtype != np.float64 or min(*A.shape, *B.shape) == 0:
        return A @ B
    if A.flags.f_contiguous:
        a, turned = A, 0
    elif A.flags.c_contiguous:
        a, turned = A.T, 1
    else:
        return A @ B
    if B.ndim == 1:
        return blas.dgemv(1.0, a, B, trans=turned)
    if B.flags.f_contiguous:
        return blas.dgemm(1.0, a, B, trans_a=turned)
    return blas.dgemm(1.0, a, B.T, trans_a=turned, trans_b=1)


def add_gram(total: Array, W: Array) -> Array:
    """``total + W W'`` (lower triangle), in place where the library allows."""
    if not isinstance(total, np.ndarray):
        return total + W @ W.T
    if W.size == 0:
        return total
    if W.flags.f_contiguous:
        return blas.dsyrk(1.0, W, beta=1.0, c=total, lower=1, overwrite_c=1)
    return blas.dsyrk(1.0, W.T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1)


def whiten_columns(L: Array, W: Array) -> Array:
    """``L^-1 W``, overwriting `W` where the library allows."""
    if not isinstance(W, np.ndarray):
        return namespace_of(W).linalg.solve(L, W)
    if W.size == 0:
        return W
    if W.flags.f_contiguous:
        return blas.dtrsm(1.0, L, W, lower=1, overwrite_b=1)
    return blas.dtrsm(1.0, L, W.T, side=1, lower=1, trans_a=1, overwrite_b=1).T


def squared_column_norms(V: Array) -> Array:
    """Sum of squares of every column, without a temporary of V's size where possible."""
    if isinstance(V, np.ndarray):
        return np.einsum("ij,ij->j", V, V)
    return namespace_of(V).sum(V * V, axis=0)


# ---- factorisations ----------------------------------------------------------------------------


def cholesky(A: Array, *, overwrite: bool = False) -> Array:
    """Lower Cholesky factor of `A`, of which only the lower triangle is read.

    Raises
    ------
    NotPositiveDefinite
        If `A` is not numerically positive definite or not finite.
    """
    if isinstance(A, np.ndarray):
        if A.shape[0] == 0:
            return A
        factor, info = lapack.dpotrf(A, lower=1, clean=1, overwrite_a=int(overwrite))
        if info != 0 or not np.isfinite(factor.diagonal()).all():
            msg = f"a matrix of order {A.shape[0]} is not positive definite"
            raise NotPositiveDefinite(msg)
        return factor
    xp = namespace_of(A)
    try:
        factor = xp.linalg.cholesky(xp.tril(A) + xp.tril(A, k=-1).T)
    except Exception as error:  # every library has an error class of its own
        raise NotPositiveDefinite(str(error)) from error
    if not bool(xp.all(xp.isfinite(factor))):
        msg = f"a matrix of order {A.shape[0]} is not positive definite"
        raise NotPositiveDefinite(msg)
    return factor


def cholesky_of_psd_plus(G: Array, floor: float) -> Array:
    """Cholesky factor of ``floor I + G`` for a `G` that is positive semi-definite by construction.

    Implements :eq:`psd-floor`: where rounding has pushed an eigenvalue of the sum below the floor
    that mathematics guarantees, it is put back, a change of the size of the rounding itself.
    """
    xp = namespace_of(G)
    eye = xp.eye(G.shape[0], dtype=G.dtype, device=device_of(G))
    shifted = G + floor * eye
    try:
        return cholesky(shifted)
    except NotPositiveDefinite:
        if not bool(xp.all(xp.isfinite(G))):
            raise
    values, vectors = xp.linalg.eigh(xp.tril(G) + xp.tril(G, k=-1).T)
    roots = xp.sqrt(xp.clip(values, min=0.0) + floor)
    R = xp.linalg.qr(roots[:, None] * vectors.T).R
    diagonal = xp.linalg.diagonal(R)
    L = (R * xp.where(diagonal < 0, -xp.ones_like(diagonal), 1.0)[:, None]).T
    return np.asfortranarray(L) if isinstance(L, np.ndarray) else L


def invert_lower(L: Array) -> Array:
    """Inverse of a lower triangular matrix."""
    if isinstance(L, np.ndarray):
        return L if L.shape[0] == 0 else np.tril(lapack.dtrtri(L, lower=1)[0])
    xp = namespace_of(L)
    return xp.linalg.inv(L)


def solve_lower(L: Array, B: Array) -> Array:
    """``L^-1 B`` for a vector or a matrix `B`."""
    return _solve_triangular(L, B, transposed=0)


def solve_lower_transposed(L: Array, B: Array) -> Array:
    """``L'^-1 B`` for a vector or a matrix `B`."""
    return _solve_triangular(L, B, transposed=1)


def solve_positive(L: Array, B: Array) -> Array:
    """``(L L')^-1 B`` for a vector or a matrix `B`."""
    return solve_lower_transposed(L, solve_lower(L, B))


def _solve_triangular(L: Array, B: Array, transposed: int) -> Array:
    if isinstance(L, np.ndarray):
        return B if B.size == 0 else lapack.dtrtrs(L, B, lower=1, trans=transposed)[0]
    xp = namespace_of(L)
    triangle = L.T if transposed else L
    if B.ndim == 1:
        return xp.linalg.solve(triangle, B[:, None])[:, 0]
    return xp.linalg.solve(triangle, B)

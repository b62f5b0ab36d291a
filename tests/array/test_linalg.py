"""Linear algebra of both libraries against the textbook, in every memory order."""

import numpy as np
import pytest

from epslab import _array
from epslab._errors import NotPositiveDefinite

ORDERS = ["C", "F", "strided"]


def laid_out(array, order):
    """The same numbers in another memory layout."""
    if order == "strided":
        wide = np.full((array.shape[0], 2 * array.shape[1]), np.nan)
        wide[:, ::2] = array
        return wide[:, ::2]
    return np.array(array, order=order)


def lower(A):
    return np.tril(np.asarray(A))


def positive(rng, n):
    B = rng.standard_normal((n, n))
    return B @ B.T + 0.1 * np.eye(n)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 1), (4, 0)])
def test_add_gram(rng, xp, order, shape):
    W = rng.standard_normal(shape)
    start = rng.standard_normal((shape[0], shape[0]))
    total = _array.empty_square(shape[0], xp.asarray(W))
    assert total.dtype == xp.float64
    assert not np.asarray(total).any()
    total = total + xp.asarray(start)
    given = xp.asarray(laid_out(W, order)) if xp is not np else laid_out(W, order)
    total = _array.add_gram(total, given)
    np.testing.assert_allclose(lower(total), lower(start + W @ W.T), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("order", ORDERS)
def test_add_gram_works_in_place(rng, order):
    W = laid_out(rng.standard_normal((3, 7)), order)
    total = _array.empty_square(3, W)
    assert _array.add_gram(total, W) is total


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_columns(rng, order, dtype):
    X = laid_out(rng.standard_normal((4, 9)), order).astype(dtype, order="K")
    scale = rng.random(3)
    first = _array.scaled_columns(X, 2, 5, scale, None)
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, X[:, 2:5].astype(float) * scale)
    again = _array.scaled_columns(X, 5, 8, scale, first)
    assert again is first, "the block's memory is used again"
    np.testing.assert_array_equal(again, X[:, 5:8].astype(float) * scale)
    short = _array.scaled_columns(X, 8, 9, scale[:1], again)
    np.testing.assert_array_equal(short, X[:, 8:9].astype(float) * scale[:1])


def test_scaled_columns_of_any_library(rng, xp):
    X, scale = rng.standard_normal((4, 6)), rng.random(3)
    block = _array.scaled_columns(xp.asarray(X, dtype=xp.float32), 1, 4, xp.asarray(scale), None)
    assert block.dtype == xp.float64
    np.testing.assert_array_equal(np.asarray(block), X[:, 1:4].astype(np.float32) * scale)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(3, 5), (5, 2), (1, 1), (3, 0)])
def test_whiten_columns(rng, xp, order, shape):
    L = np.linalg.cholesky(positive(rng, shape[0]))
    W = laid_out(rng.standard_normal(shape), order)
    expected = np.linalg.solve(L, W)
    factor = np.asfortranarray(L) if xp is np else xp.asarray(L)
    V = _array.whiten_columns(factor, W if xp is np else xp.asarray(W))
    np.testing.assert_allclose(np.asarray(V), expected, rtol=1e-11, atol=1e-12)
    norms = _array.squared_column_norms(V)
    np.testing.assert_allclose(np.asarray(norms), (expected**2).sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
def test_whiten_columns_overwrites(rng, order):
    L = np.asfortranarray(np.linalg.cholesky(positive(rng, 4)))
    W = np.array(rng.standard_normal((4, 6)), order=order)
    assert np.shares_memory(_array.whiten_columns(L, W), W)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_cholesky_reads_the_lower_triangle_only(rng, xp, n):
    A = positive(rng, n)
    garbage = np.tril(A) + np.triu(np.full((n, n), np.nan), k=1)
    given = np.array(garbage, order="F")
    L = np.asarray(_array.cholesky(given if xp is np else xp.asarray(garbage)))
    np.testing.assert_array_equal(np.triu(L, k=1), np.zeros((n, n)))
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(given, garbage)  # not overwritten unless asked for


@pytest.mark.parametrize(
    "A",
    [
        [[1.0, 2.0], [2.0, 1.0]],
        [[0.0]],
        [[-1.0]],
        [[np.nan]],
        [[np.inf]],
        [[1.0, 0.0], [np.nan, 1.0]],
    ],
    ids=["indefinite", "zero", "negative", "nan", "inf", "nan below"],
)
def test_cholesky_refuses(xp, A):
    with _array.quiet(), pytest.raises(NotPositiveDefinite):
        _array.cholesky(xp.asarray(A))


@pytest.mark.parametrize("n", [1, 4, 8])
def test_psd_plus_is_cholesky_where_that_exists(rng, xp, n):
    G = positive(rng, n)
    L = np.asarray(_array.cholesky_of_psd_plus(xp.asarray(G), 0.5))
    np.testing.assert_allclose(L, np.linalg.cholesky(G + 0.5 * np.eye(n)), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("floor", [1e-3, 1.0])
def test_psd_plus_projects_eigenvalues(rng, xp, n, floor):
    """:eq:`psd-floor`: eigenvalues below zero go to zero, and nothing else moves."""
    vectors = np.linalg.qr(rng.standard_normal((n, n))).Q
    values = rng.standard_normal(n)
    values[0] = -floor - 1.0
    G = (vectors * values) @ vectors.T
    projected = (vectors * np.maximum(values, 0.0)) @ vectors.T + floor * np.eye(n)
    L = np.asarray(_array.cholesky_of_psd_plus(xp.asarray(np.tril(G)), floor))
    np.testing.assert_array_equal(np.triu(L, k=1), np.zeros((n, n)))
    assert (np.diag(L) > 0).all()
    np.testing.assert_allclose(L @ L.T, projected, rtol=0, atol=1e-13 * n * abs(values).max())


@pytest.mark.parametrize("n", [2, 5, 20])
def test_psd_plus_never_fails_on_a_gram_matrix(rng, n):
    """:eq:`psd-floor`: the change is of the size of the rounding, however small the floor."""
    for exponent in (0, 8, 17, 25):
        W = 10.0**exponent * rng.standard_normal((n, 1)) * np.ones(n + 2)
        W = W + rng.standard_normal(W.shape)
        G = W @ W.T
        L = _array.cholesky_of_psd_plus(np.asfortranarray(G), 1e-3)
        assert np.isfinite(L).all()
        norm = np.linalg.norm(G)
        assert np.linalg.norm(L @ L.T - G - 1e-3 * np.eye(n)) <= 10 * n * 2.3e-16 * norm


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_psd_plus_refuses_what_is_not_finite(xp, value):
    with _array.quiet(), pytest.raises(NotPositiveDefinite):
        _array.cholesky_of_psd_plus(xp.asarray([[value, 0.0], [0.0, 1.0]]), 1.0)


@pytest.mark.parametrize("n", [0, 1, 6])
@pytest.mark.parametrize("k", [None, 0, 1, 4])
def test_triangular_solves(rng, xp, n, k):
    L = np.linalg.cholesky(positive(rng, n))
    B = rng.standard_normal(n if k is None else (n, k))
    factor = np.asfortranarray(L) if xp is np else xp.asarray(L)
    upper = np.triu(np.full((n, n), np.nan), k=1)
    if xp is np:  # BLAS must not look above the diagonal; other libraries get it clean
        factor = np.asfortranarray(L + upper) if n > 1 else factor
    given = xp.asarray(B)
    cases = [
        (_array.solve_lower, L),
        (_array.solve_lower_transposed, L.T),
        (_array.solve_positive, L @ L.T),
    ]
    for solve, matrix in cases:
        solution = np.asarray(solve(factor, given))
        assert solution.shape == B.shape
        np.testing.assert_allclose(matrix @ solution, B, rtol=1e-9, atol=1e-9)
    inverse = np.asarray(_array.invert_lower(factor))
    np.testing.assert_allclose(inverse @ L, np.eye(n), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(np.asarray(given), B)


@pytest.mark.parametrize("order", ["C", "F", "strided", "float32", "empty"])
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_product_is_the_product_in_every_layout(rng, order, columns):
    A = rng.standard_normal((6, 10))
    A = {
        "C": A,
        "F": np.asfortranarray(A),
        "strided": A[::2, ::2],
        "float32": A.astype(np.float32),
        "empty": A[:, :0],
    }[order]
    B = rng.standard_normal(A.shape[1] if columns is None else (A.shape[1], columns))
    for right in (B, np.asfortranarray(B)):
        np.testing.assert_allclose(_array.product(A, right), A @ right, rtol=1e-13, atol=1e-13)
    left = rng.standard_normal(A.shape[0])
    np.testing.assert_allclose(_array.product(A.T, left), A.T @ left, rtol=1e-6, atol=1e-6)

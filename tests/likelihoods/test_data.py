"""Columns: the few products that EP needs of X, the same numbers in whatever form X comes."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp

from epslab.likelihoods import DenseColumns, SparseColumns, _data, _sparse

SHAPES = [(4, 7), (7, 4), (1, 1), (1, 6), (6, 1)]


def strided(X):
    wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan, dtype=X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def backwards(X):
    return X[::-1, ::-1].copy()[::-1, ::-1]


FORMS = {
    "C": lambda X: DenseColumns(np.array(X, order="C")),
    "F": lambda X: DenseColumns(np.array(X, order="F")),
    "strided": lambda X: DenseColumns(strided(X)),
    "backwards": lambda X: DenseColumns(backwards(X)),
    "array_api_strict": lambda X: DenseColumns(array_api_strict.asarray(X)),
    "sparse": lambda X: SparseColumns(sp.csc_array(X)),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of one or two columns, so that every pass has several."""
    monkeypatch.setattr(_data, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(_sparse, "_BLOCK_BYTES", 100)


def design(rng, shape, dtype=np.float64):
    X = rng.standard_normal(shape) * (rng.random(shape) < 0.7)
    return X.astype(dtype)


def in_library(columns, *arrays):
    """Arguments as the columns' own library has them."""
    if isinstance(columns, DenseColumns) and not isinstance(columns.X, np.ndarray):
        return [array_api_strict.asarray(a) for a in arrays]
    return list(arrays)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("small_blocks")
def test_products_are_those_of_the_dense_matrix(rng, form, shape, dtype):
    """:eq:`dual-gram`: scaled Gram matrix and whitened columns, in several blocks."""
    n, d = shape
    given = design(rng, shape, dtype)
    columns, X = form(given), given.astype(float)
    assert (columns.n_rows, columns.n_features) == shape
    scale, weights, a = 0.5 + rng.random(d), rng.standard_normal(d), rng.standard_normal(n)
    L = np.linalg.cholesky(np.eye(n) + (X * scale) @ (X * scale).T)
    w, z = rng.standard_normal((d, 3)), rng.standard_normal((n, 3))
    s, u, f, b = in_library(columns, scale, weights, np.asfortranarray(L), a)
    gram, fit = columns.weighted_gram(s, u)
    norms, back = columns.whitened(f, s, b)
    V = np.linalg.solve(L, X * scale)
    wv, wm, zv, zm = in_library(columns, w[:, 0], w, z[:, 0], z)
    (indices,) = in_library(columns, np.array([d - 1, 0]))
    results = [
        (np.tril(np.asarray(gram)), np.tril((X * scale) @ (X * scale).T)),
        (fit, (X * scale) @ weights),
        (norms, (V**2).sum(axis=0)),
        (back, V.T @ a),
        (columns.times(wv), X @ w[:, 0]),
        (columns.times(wm), X @ w),
        (columns.transposed_times(zv), X.T @ z[:, 0]),
        (columns.transposed_times(zm), X.T @ z),
        (columns.squared_norms(), (X**2).sum(axis=0)),
        (columns.take(indices), X[:, [d - 1, 0]]),
        (np.tril(np.asarray(columns.cross_gram())), np.tril(X.T @ X)),
    ]
    for got, expected in results:
        got = np.asarray(got)
        assert got.dtype == np.float64
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["C", "F", "strided", "sparse"])
@pytest.mark.usefixtures("small_blocks")
def test_single_precision_is_only_storage(rng, name):
    """float32 X gives what float64 X of the same values gives, to the rounding of float64."""
    given = design(rng, (5, 8), np.float32)
    narrow, wide = FORMS[name](given), FORMS[name](given.astype(float))
    assert narrow.X.dtype == np.float32
    scale, z, w = 0.5 + rng.random(8), rng.standard_normal(5), rng.standard_normal(8)
    for a, b in zip(
        (*narrow.weighted_gram(scale, w), narrow.times(w), narrow.transposed_times(z)),
        (*wide.weighted_gram(scale, w), wide.times(w), wide.transposed_times(z)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(narrow.squared_norms(), wide.squared_norms(), rtol=1e-15)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.usefixtures("small_blocks")
def test_columns_never_write_to_the_caller(rng, read_only, order):
    X = read_only(np.array(design(rng, (4, 6)), order=order))
    columns, scale = DenseColumns(X), 0.5 + rng.random(6)
    before = X.copy()
    columns.weighted_gram(scale, scale)
    columns.whitened(np.asfortranarray(2 * np.eye(4)), scale, np.ones(4))
    columns.cross_gram()
    np.testing.assert_array_equal(X, before)


def test_no_columns_at_all():
    """With p = 0 for every feature nothing is left, and its products are zeros."""
    for columns in (DenseColumns(np.empty((3, 0))), SparseColumns(sp.csc_array((3, 0)))):
        none = np.empty(0)
        gram, fit = columns.weighted_gram(none, none)
        np.testing.assert_array_equal(gram, np.zeros((3, 3)))
        np.testing.assert_array_equal(fit, np.zeros(3))
        assert columns.squared_norms().shape == (0,)
        assert columns.transposed_times(np.ones(3)).shape == (0,)
        np.testing.assert_array_equal(columns.times(none), np.zeros(3))
        assert columns.cross_gram().shape == (0, 0)

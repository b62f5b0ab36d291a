"""A sparse X gives what the dense X of the same numbers gives."""

import designs
import numpy as np
import oracles
import pytest
import scipy.sparse as sp

import epslab as es
from epslab import Natural
from epslab.likelihoods import DenseColumns, SparseColumns, gaussian_likelihood

PRIOR = es.SpikeSlabPrior(inclusion=0.3, slab_variance=1.0)


def sparse_design(rng, n, d, density=0.3):
    """Some columns empty, some with one entry, some full."""
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    X[:, 0] = rng.standard_normal(n)
    X[:, -1] = 0.0
    return X


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(5, 12), (30, 200), (12, 5)])
@pytest.mark.parametrize("sites", ["positive", "negative"])
def test_conditioning_is_that_of_the_dense_matrix(rng, dtype, shape, sites):
    """:eq:`dual-variance`, :eq:`dual-mean`, :eq:`primal-moments` through sparse products."""
    X = sparse_design(rng, *shape).astype(dtype)
    slab = 10 ** rng.uniform(-1, 1, shape[1])
    y, noise = designs.target(rng, X, slab, 0.1)
    precision = designs.precisions(rng, slab)
    if sites == "negative":
        precision[:3] = 0.1 / slab[:3]
        precision = designs.negated(X.astype(float), noise, precision, [0, 1, 2])
    natural = Natural(designs.shifts(rng, precision), precision)
    one, other = (
        gaussian_likelihood(columns, y, noise, 1 / slab).condition(natural)
        for columns in (SparseColumns(sp.csc_array(X)), DenseColumns(X.astype(float)))
    )
    np.testing.assert_allclose(one.moments.variance, other.moments.variance, rtol=1e-9)
    np.testing.assert_allclose(one.moments.mean, other.moments.mean, rtol=1e-8, atol=1e-9)
    assert one.log_norm == pytest.approx(other.log_norm, rel=1e-10)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_array])
def test_problems_take_any_sparse_form(rng, form):
    """The same sites, energy and posterior, p = 0 columns taken out included."""
    X = sparse_design(rng, 6, 9)
    y = X @ rng.standard_normal(9)
    inclusion = np.array([0.3, 0.0, 0.5, 1.0, 0.2, 0.0, 0.3, 0.3, 0.3])
    prior = es.SpikeSlabPrior(inclusion, 1.0)
    one, other = (
        es.solve(es.Problem(given, y, noise_variance=0.1, prior=prior), es.ParallelEP(tol=1e-9))
        for given in (form(X), X)
    )
    assert one.converged
    assert one.energy == pytest.approx(other.energy, rel=1e-9)
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(one.posterior.variance, other.posterior.variance, atol=1e-8)


def test_explicit_zeros_and_duplicates_do_not_count(rng):
    """Entries given twice add up; stored zeros are zeros (:eq:`settled` looks at the column)."""
    data = [1.0, 2.0, 0.0, 0.0, -1.0]
    rows, cols = [0, 0, 0, 1, 1], [0, 0, 1, 1, 2]
    X = sp.coo_array((data, (rows, cols)), shape=(2, 3))
    dense = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    y = rng.standard_normal(2)
    one, other = (es.Problem(given, y, noise_variance=0.5, prior=PRIOR) for given in (X, dense))
    np.testing.assert_array_equal(one.open, [True, False, True])
    np.testing.assert_array_equal(one.open, other.open)
    sites = one.default_sites()
    np.testing.assert_allclose(
        one.condition(sites).moments.variance, other.condition(sites).moments.variance
    )


def test_the_callers_matrix_is_left_alone(rng):
    X = sp.csc_array(sparse_design(rng, 4, 6))
    data, indices, indptr = X.data.copy(), X.indices.copy(), X.indptr.copy()
    X.data.flags.writeable = False
    problem = es.Problem(X, rng.standard_normal(4), noise_variance=0.1, prior=PRIOR)
    es.solve(problem, es.SequentialEP())
    np.testing.assert_array_equal(X.data, data)
    np.testing.assert_array_equal(X.indices, indices)
    np.testing.assert_array_equal(X.indptr, indptr)


def test_single_precision_data_is_summed_in_double(rng):
    """float32 entries whose squares float32 cannot hold: sums and products are float64."""
    X = sparse_design(rng, 4, 7).astype(np.float32) * np.float32(3e18)
    y = 1e18 * rng.standard_normal(4)
    noise, slab = 1e36, np.full(7, 1.0)
    precision = 1 / slab
    gaussian = gaussian_likelihood(SparseColumns(sp.csc_array(X)), y, noise, 1 / slab).condition(
        Natural(0 * slab, precision)
    )
    true = oracles.condition(X.astype(float), y, noise, 0 * slab, precision)
    np.testing.assert_allclose(gaussian.moments.variance, true["variance"], rtol=1e-9)
    np.testing.assert_allclose(gaussian.moments.mean, true["mean"], rtol=1e-8, atol=1e-10)


def test_prediction_takes_sparse_rows(rng):
    """:eq:`predictive` for sparse new rows is that for dense ones."""
    X = sparse_design(rng, 8, 5)
    problem = es.Problem(X, rng.standard_normal(8), noise_variance=0.1, prior=PRIOR)
    posterior = es.solve(problem, es.ParallelEP()).posterior
    rows = sparse_design(rng, 3, 5)
    one, other = posterior.predict(sp.csr_array(rows)), posterior.predict(rows)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)

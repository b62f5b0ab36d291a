"""Nothing is ever d x d in the dual form, nor twice the size of X."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import epslab as es
from epslab import Natural
from epslab.likelihoods import DenseColumns, SparseColumns, gaussian_likelihood

MB = 2**20


class Peak:
    """Largest number of bytes allocated inside the block, over what there was before."""

    def __enter__(self):
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1] - self.before
        tracemalloc.stop()


def wide_problem(rng, n, d, dtype=np.float64):
    X = np.asfortranarray(rng.standard_normal((n, d)).astype(dtype))
    return X, rng.standard_normal(n), np.ones(d)


@pytest.mark.parametrize("lifted", [0, 20])
def test_conditioning_of_many_features(rng, lifted):
    """:eq:`dual-gram`, :eq:`downdate`: d = 200,000 has no d x d array in any memory."""
    n, d = 5, 200_000
    X, y, slab = wide_problem(rng, n, d)
    precision = np.full(d, 100.0)
    precision[:lifted] = 1e-6
    precision[: lifted // 20] = -1e-8
    sites = Natural(np.zeros(d), precision)
    likelihood = gaussian_likelihood(DenseColumns(X), y, 10.0, 1 / slab)
    with Peak() as peak:
        gaussian = likelihood.condition(sites)
        gaussian.covariance(np.arange(3))
        gaussian.times_covariance(np.ones(d))
        gaussian.projected_variance(X[:2])
        gaussian.sample(2, rng)
    # vectors of length d, of which one takes 1.6 MB, and the columns of the lifted features
    assert peak.bytes < (60 + 4 * lifted) * d * 8
    assert peak.bytes < 300 * MB


@pytest.mark.parametrize("solver", [es.ParallelEP(max_iter=2), es.SequentialEP(max_iter=0)])
def test_solvers_of_many_features(rng, solver):
    """A solve keeps vectors of length d, and asks for no more; so do its answers."""
    n, d = 5, 100_000
    X, y, _ = wide_problem(rng, n, d)
    prior = es.SpikeSlabPrior(1e-4, 1.0)
    with Peak() as peak:
        problem = es.Problem(X, y, noise_variance=1.0, prior=prior)
        posterior = es.solve(problem, solver).posterior
        posterior.covariance([0, d // 2, -1])
        posterior.predict(X[:2])
        posterior.sample(2, 0)
    assert peak.bytes < 100 * d * 8


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_work_array_beside_x(rng, dtype):
    """Blocks of columns instead of copies: a conditioning needs a fraction of a large X."""
    n, d = 100, 30_000
    X, y, slab = wide_problem(rng, n, d, dtype)
    sites = Natural(np.zeros(d), np.full(d, 10.0))
    likelihood = gaussian_likelihood(DenseColumns(X), y, 1.0, 1 / slab)
    with Peak() as peak:
        likelihood.condition(sites)
    assert peak.bytes < 0.75 * n * d * 8


def test_building_a_problem_does_not_copy_x(rng):
    n, d = 100, 20_000
    X, y, _ = wide_problem(rng, n, d)
    with Peak() as peak:
        es.Problem(X, y, noise_variance=1.0, prior=es.SpikeSlabPrior(0.01, 1.0))
    assert peak.bytes < 0.5 * X.nbytes


def test_sparse_x_is_never_dense(rng):
    """Blocks again: the whole of a sparse X would be 240 MB here, and d x d is out of reach."""
    n, d = 100, 300_000
    X = sp.csc_array(sp.random_array((n, d), density=2e-3, rng=rng))
    sites = Natural(np.zeros(d), np.full(d, 10.0))
    with Peak() as peak:
        likelihood = gaussian_likelihood(SparseColumns(X), rng.standard_normal(n), 1.0, np.ones(d))
        gaussian = likelihood.condition(sites)
        gaussian.covariance(np.arange(3))
        gaussian.times_covariance(np.ones(d))
    assert peak.bytes < 120 * MB


def test_tall_designs_are_not_copied(rng):
    """:eq:`primal-moments`: X is read once, in blocks of rows, into a d x d matrix."""
    n, d = 30_000, 20
    X = rng.standard_normal((n, d))
    y = rng.standard_normal(n)
    with Peak() as peak:
        likelihood = gaussian_likelihood(DenseColumns(X), y, 1.0, np.ones(d))
        likelihood.condition(Natural(np.zeros(d), np.ones(d)))
    assert peak.bytes < 2 * X.nbytes

"""What is known after a fit: joint moments, draws and predictions, against dense covariances.

Exercises :eq:`joint-covariance`, :eq:`joint-sample`, :eq:`predictive` and :eq:`tilted-mean`.
"""

import array_api_strict
import designs
import numpy as np
import oracles
import pytest
import scipy.sparse as sp

import epslab as es

SHAPES = [(4, 7), (8, 5), (1, 3), (3, 1)]


class Fit:
    """A fit of which some features are removed, some always in, and all else open."""

    def __init__(self, rng, n, d, solver=None, mixed=True, as_array=np.asarray):
        self.X, self.y, self.noise, self.slab = designs.regression(rng, n, d, 0.02)
        self.inclusion = rng.uniform(0.1, 0.5, d)
        if mixed and d > 2:
            self.inclusion[1], self.inclusion[-1] = 0.0, 1.0
        prior = es.SpikeSlabPrior(self.inclusion, self.slab)
        problem = es.Problem(as_array(self.X), self.y, noise_variance=self.noise, prior=prior)
        self.result = es.solve(problem, solver or es.SequentialEP(max_iter=30))
        self.posterior = self.result.posterior
        self.kept = np.flatnonzero(self.inclusion > 0)

    def true_moments(self):
        """Mean and covariance over all features: Q's at the sites, or exact."""
        d = self.X.shape[1]
        mean, covariance = np.zeros(d), np.zeros((d, d))
        if self.result.sites is None:
            args = self.X, self.y, self.noise, self.inclusion, self.slab
            q = oracles.enumerate_naive(*args)
            return q["mean"], q["covariance"]
        sites = (
            np.asarray(a)[self.kept] for a in (self.result.sites.shift, self.result.sites.precision)
        )
        q = oracles.condition(self.X[:, self.kept], self.y, self.noise, *sites)
        mean[self.kept] = q["mean"]
        covariance[np.ix_(self.kept, self.kept)] = q["covariance"]
        return mean, covariance


SOLVERS = {"ep": None, "exact": es.ExactEnumeration()}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


@pytest.mark.parametrize("shape", SHAPES)
def test_covariance_is_that_of_the_joint_posterior(rng, solver, shape):
    """:eq:`joint-covariance`, in any order, twice, from the end; zero where removed."""
    fit, d = Fit(rng, *shape, solver), shape[1]
    _, covariance = fit.true_moments()
    for indices in ([], [0], range(d), [-1, 0, 0], rng.permutation(d), [d - 1, -d], (np.int64(0),)):
        chosen = np.asarray(list(indices), dtype=int)
        got = fit.posterior.covariance(indices)
        expected = covariance[np.ix_(chosen, chosen)]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9 * fit.slab.max())


def test_covariance_has_the_marginal_variances(rng):
    """At a fixed point the tilted variances are Q's: :eq:`residual` says how nearly."""
    fit = Fit(rng, 10, 4, es.ParallelEP(tol=1e-10), mixed=False)
    assert fit.result.converged
    covariance = fit.posterior.covariance(range(4))
    np.testing.assert_allclose(np.diag(covariance), fit.posterior.variance, atol=1e-8)
    np.testing.assert_array_equal(covariance, covariance.T)


def test_marginals_are_tilted_moments_at_the_exact_cavity(rng):
    """:eq:`tilted-mean`, :eq:`tilted-variance`, :eq:`tilted-inclusion` of the result's cavity."""
    fit = Fit(rng, 4, 6)
    kept = fit.kept
    sites, marginals = fit.result.sites, fit.result.marginals
    true = oracles.tilted_many(
        marginals.shift[kept] - sites.shift[kept],
        marginals.precision[kept] - sites.precision[kept],
        fit.inclusion[kept],
        fit.slab[kept],
    )
    for name in ("mean", "variance", "inclusion_probability"):
        got = getattr(fit.posterior, name)
        np.testing.assert_allclose(got[kept], true[name], rtol=1e-7, atol=1e-12)
        assert got[1] == 0.0, "p = 0"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_draws_have_the_shape_asked_for(rng, solver, shape, size):
    fit = Fit(rng, *shape, solver)
    draws = fit.posterior.sample(size, 3)
    assert draws.shape == (size, shape[1])
    assert np.isfinite(draws).all()
    np.testing.assert_array_equal(
        draws[:, fit.inclusion == 0], np.zeros((size, shape[1] - len(fit.kept)))
    )


def test_draws_are_reproducible(rng, solver):
    """A seed gives the same draws; a generator moves on; no seed is a new stream."""
    posterior = Fit(rng, 5, 4, solver).posterior
    np.testing.assert_array_equal(posterior.sample(4, 1), posterior.sample(4, 1))
    np.testing.assert_array_equal(
        posterior.sample(4, 1), posterior.sample(4, np.random.default_rng(1))
    )
    assert (posterior.sample(4, 1) != posterior.sample(4, 2)).any()
    assert (posterior.sample(4) != posterior.sample(4)).any()
    generator = np.random.default_rng(1)
    assert (posterior.sample(4, generator) != posterior.sample(4, generator)).any()


def test_whole_numbers_of_numpy_are_whole_numbers(rng):
    posterior = Fit(rng, 4, 3).posterior
    np.testing.assert_array_equal(
        posterior.sample(np.int64(2), np.int32(1)), posterior.sample(2, 1)
    )


@pytest.mark.parametrize("shape", [(4, 6), (8, 4)])
def test_draws_have_the_joint_moments(rng, solver, shape):
    """:eq:`joint-sample` within five standard errors; exact draws are zero where out."""
    fit = Fit(rng, *shape, solver)
    size = 20_000
    draws = fit.posterior.sample(size, 11)
    mean, covariance = fit.true_moments()
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) <= 5 * sd / np.sqrt(size) + 1e-15).all()
    centred = draws - mean
    squares = (centred**2).T @ centred**2 / size  # fourth moments: a mixture has heavy tails
    error = np.sqrt(squares / size)
    assert (np.abs(centred.T @ centred / size - covariance) <= 6 * error + 1e-15).all()
    if fit.result.sites is None:
        share = (draws != 0).mean(axis=0)
        p = fit.posterior.inclusion_probability
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / size) + 1e-12).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, np.ndarray.tolist, sp.csr_array])
def test_predictions_have_the_moments_of_new_rows(rng, solver, shape, form):
    """:eq:`predictive`, with the noise of a new observation and without."""
    fit = Fit(rng, *shape, solver)
    mean, covariance = fit.true_moments()
    rows = rng.standard_normal((5, shape[1]))
    rows[0] = 0.0
    line = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    size = np.abs(rows) @ np.sqrt(np.diag(covariance))
    given = form(rows)
    observed, unobserved = fit.posterior.predict(given), fit.posterior.predict(given, noise=False)
    for moments in (observed, unobserved):
        error = np.abs(moments.mean - rows @ mean)
        assert (error <= 1e-7 * (np.abs(rows) @ (np.abs(mean) + np.sqrt(fit.slab)))).all()
    assert (np.abs(unobserved.variance - line) <= 1e-7 * size**2 + 1e-15).all()
    assert (unobserved.variance >= 0).all()
    np.testing.assert_allclose(observed.variance, unobserved.variance + fit.noise, rtol=1e-14)


def test_prediction_of_no_rows(rng, solver):
    moments = Fit(rng, 4, 3, solver).posterior.predict(np.empty((0, 3)))
    assert moments.mean.shape == moments.variance.shape == (0,)


def test_prediction_needs_nothing_of_removed_features(rng):
    """:eq:`settled`, p = 0: their coefficients are exactly zero."""
    fit = Fit(rng, 4, 6)
    rows = rng.standard_normal((3, 6))
    other = rows.copy()
    other[:, 1] = 1e9
    one, two = fit.posterior.predict(rows), fit.posterior.predict(other)
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.variance, two.variance)


def test_nothing_left_to_ask(rng):
    """All features out: everything is zero, and a prediction is noise."""
    X, y, noise, _ = designs.regression(rng, 4, 3)
    problem = es.Problem(X, y, noise_variance=noise, prior=es.SpikeSlabPrior(0.0, 1.0))
    posterior = es.solve(problem).posterior
    np.testing.assert_array_equal(posterior.covariance([0, 2]), np.zeros((2, 2)))
    np.testing.assert_array_equal(posterior.sample(2, 0), np.zeros((2, 3)))
    moments = posterior.predict(X)
    np.testing.assert_array_equal(moments.mean, np.zeros(4))
    np.testing.assert_array_equal(moments.variance, np.full(4, noise))


def test_single_precision_rows_and_columns(rng):
    """float32 in, float64 arithmetic: covariances of float32 X are those of its values."""
    one = Fit(rng, 5, 4, as_array=lambda X: X.astype(np.float32))
    one.X = one.X.astype(np.float32).astype(float)
    _, covariance = one.true_moments()
    got = one.posterior.covariance(range(4))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, covariance, rtol=1e-7, atol=1e-10)


def test_libraries_agree(rng):
    """The posterior of a problem of another library answers in that library."""
    state = rng.bit_generator.state
    ours = Fit(rng, 4, 6)
    rng.bit_generator.state = state
    theirs = Fit(rng, 4, 6, as_array=array_api_strict.asarray)
    rows = np.linspace(-1, 1, 12).reshape(2, 6)
    answers = [
        (
            p.mean,
            p.covariance([0, 1, -1]),
            p.sample(2, 5),
            p.predict(rows).mean,
            p.predict(rows).variance,
        )
        for p in (ours.posterior, theirs.posterior)
    ]
    for one, other in zip(*answers, strict=True):
        assert type(other).__module__.startswith("array_api_strict")
        np.testing.assert_allclose(np.asarray(other), one, rtol=1e-7, atol=1e-10)

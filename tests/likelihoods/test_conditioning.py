"""Conditioning on Gaussian sites, in both forms, against dense inverses in mpmath.

Exercises :eq:`q-gaussian`, :eq:`dual-gram`, :eq:`dual-variance`, :eq:`dual-mean`,
:eq:`dual-norm`, :eq:`primal-moments`, :eq:`primal-norm`, :eq:`lift`, :eq:`downdate`,
:eq:`downdate-mean`, :eq:`downdate-norm`, :eq:`joint-covariance` and :eq:`joint-sample`.
"""

import itertools

import array_api_strict
import designs
import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from epslab import Natural
from epslab._array import quiet
from epslab._errors import NotPositiveDefinite
from epslab.likelihoods import DenseColumns, SitesAlone, SparseColumns, gaussian_likelihood
from epslab.likelihoods._conditioning import (
    DualGaussian,
    DualLikelihood,
    PrimalGaussian,
    PrimalLikelihood,
)

UNIT = np.finfo(float).eps


def dense(X):
    return DenseColumns(X)


def sparse(X):
    return SparseColumns(sp.csc_array(X))


def strict(X):
    return DenseColumns(array_api_strict.asarray(X))


WIDE = [(1, 5), (3, 4), (4, 7), (5, 5)]
TALL = [(7, 4), (5, 5), (6, 1), (1, 1)]
FORMS = [
    *((DualLikelihood, columns, shape) for columns in (dense, sparse, strict) for shape in WIDE),
    *((PrimalLikelihood, columns, shape) for columns in (dense, sparse, strict) for shape in TALL),
]
NAMES = [f"{form.__name__[:4].lower()}-{cols.__name__}-{n}x{d}" for form, cols, (n, d) in FORMS]
every_form = pytest.mark.parametrize(("form", "columns", "shape"), FORMS, ids=NAMES)


def condition(form, columns, X, y, noise, slab, shift, precision):
    given = columns(X)
    arrays = [np.asarray(a, float) for a in (y, 1 / slab, shift, precision)]
    if columns is strict:
        arrays = [array_api_strict.asarray(a) for a in arrays]
    y, lift, shift, precision = arrays
    with quiet():
        return form(given, y, noise, lift).condition(Natural(shift, precision))


def moments(gaussian):
    return np.asarray(gaussian.moments.mean), np.asarray(gaussian.moments.variance)


def drawn(rng, shape, sites):
    """A problem and sites: all positive, one exactly zero, or some lowered below zero."""
    n, d = shape
    X, y, noise, slab = designs.regression(rng, n, d)
    precision = designs.precisions(rng, slab)
    if sites == "zero":
        precision[rng.integers(d)] = 0.0
    if sites == "negative":
        chosen = rng.permutation(d)[: max(1, d // 2)]
        precision[chosen] = 0.1 / slab[chosen]
        precision = designs.negated(X, noise, precision, chosen)
        assert precision.min() < 0
    return X, y, noise, slab, designs.shifts(rng, precision), precision


@every_form
@pytest.mark.parametrize("sites", ["positive", "zero", "negative"])
def test_moments_and_norm_are_those_of_the_dense_inverse(rng, form, columns, shape, sites):
    """Means, variances and log Z; then everything that reads the joint covariance."""
    X, y, noise, slab, shift, precision = drawn(rng, shape, sites)
    true = oracles.condition(X, y, noise, shift, precision)
    assert true["positive_definite"]
    gaussian = condition(form, columns, X, y, noise, slab, shift, precision)
    mean, variance = moments(gaussian)
    sd = np.sqrt(true["variance"])
    np.testing.assert_allclose(variance, true["variance"], rtol=1e-8)
    assert (np.abs(mean - true["mean"]) <= 1e-8 * (sd + np.abs(true["mean"]))).all()
    assert gaussian.log_norm == pytest.approx(true["log_norm"], rel=1e-9, abs=1e-9)
    marginals = gaussian.marginals()
    np.testing.assert_allclose(np.asarray(marginals.precision) * variance, 1.0, rtol=1e-14)
    np.testing.assert_allclose(
        np.asarray(marginals.shift) * variance, mean, rtol=1e-12, atol=1e-300
    )

    d, correlation = shape[1], np.outer(sd, sd)
    chosen = np.array([d - 1, 0, d - 1])
    rows, vector = rng.standard_normal((3, d)), rng.standard_normal(d)
    asarray = array_api_strict.asarray if columns is strict else np.asarray
    block = np.asarray(gaussian.covariance(asarray(chosen)))
    got_rows = np.asarray(gaussian.covariance_rows(asarray(chosen)))
    product = np.asarray(gaussian.times_covariance(asarray(vector)))
    projected = np.asarray(gaussian.projected_variance(asarray(rows)))
    covariance = true["covariance"]
    assert (
        np.abs(block - covariance[np.ix_(chosen, chosen)])
        <= 1e-8 * correlation[np.ix_(chosen, chosen)]
    ).all()
    assert (np.abs(got_rows - covariance[chosen]) <= 1e-8 * correlation[chosen]).all()
    assert (np.abs(product - covariance @ vector) <= 1e-7 * sd * (sd @ np.abs(vector))).all()
    size = (np.abs(rows) @ sd) ** 2
    assert (np.abs(projected - ((rows @ covariance) * rows).sum(axis=1)) <= 1e-8 * size).all()


@every_form
@pytest.mark.parametrize("side", [-1, 1], ids=["beyond", "before"])
@pytest.mark.parametrize("distance", [1e-5, 1e-2, 0.5])
def test_refuses_exactly_where_there_is_no_integral(rng, form, columns, shape, side, distance):
    """:eq:`downdate`: the small Cholesky factor is the test of properness; nothing is clipped."""
    X, y, noise, slab, shift, precision = drawn(rng, shape, "positive")
    chosen = rng.permutation(shape[1])[: 1 + shape[1] // 3]
    precision = designs.lowered(X, noise, precision, chosen[:-1], share=0.8)
    precision = designs.lowered(X, noise, precision, chosen[-1:], share=1 - side * distance)
    proper = oracles.condition(X, y, noise, shift, precision)["positive_definite"]
    assert proper == (side > 0), "the boundary is where the determinant is zero"
    if proper:
        gaussian = condition(form, columns, X, y, noise, slab, shift, precision)
        assert (moments(gaussian)[1] > 0).all()
    else:
        with pytest.raises(NotPositiveDefinite):
            condition(form, columns, X, y, noise, slab, shift, precision)


@pytest.mark.parametrize("trial", range(25))
def test_properness_of_random_sites(rng, trial):
    """The same for sites of random signs, some far outside."""
    n, d = rng.integers(1, 6, 2)
    X, y, noise, slab = designs.regression(rng, n, d)
    strength = (X**2).sum(axis=0) / noise
    precision = rng.standard_normal(d) * 10 ** rng.uniform(-2, 0.5, d) * strength
    proper = oracles.condition(X, y, noise, 0 * slab, precision)["positive_definite"]
    for form, columns in itertools.product((DualLikelihood, PrimalLikelihood), (dense, sparse)):
        try:
            condition(form, columns, X, y, noise, slab, 0 * slab, precision)
            accepted = True
        except NotPositiveDefinite:
            accepted = False
        assert accepted == proper


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (1, 3), (3, 1)])
@pytest.mark.parametrize("sites", ["positive", "zero", "negative"])
def test_both_forms_agree(rng, shape, sites):
    """Q does not depend on the form in which it is computed."""
    problem = drawn(rng, shape, sites)
    one, other = (condition(form, dense, *problem) for form in (DualLikelihood, PrimalLikelihood))
    assert isinstance(one, DualGaussian)
    assert isinstance(other, PrimalGaussian)
    np.testing.assert_allclose(one.moments.variance, other.moments.variance, rtol=1e-8)
    np.testing.assert_allclose(one.moments.mean, other.moments.mean, rtol=1e-7, atol=1e-9)
    assert one.log_norm == pytest.approx(other.log_norm, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("shape", "form"), [((3, 4), DualLikelihood), ((4, 4), PrimalLikelihood)])
def test_the_form_is_chosen_by_the_shape(rng, shape, form):
    X, y, noise, slab = designs.regression(rng, *shape)
    assert isinstance(gaussian_likelihood(DenseColumns(X), y, noise, 1 / slab), form)


def lambda_max(X, noise, precision):
    """Largest eigenvalue of C = s2 I + X D X'."""
    return np.linalg.eigvalsh((X / precision) @ X.T + noise * np.eye(len(X)))[-1]


@pytest.mark.parametrize("columns", [dense, sparse])
@pytest.mark.parametrize("kind", ["random", *designs.ILL_CONDITIONED])
@pytest.mark.parametrize("trial", range(3))
def test_variances_keep_six_digits(rng, columns, kind, trial):
    """The accuracy law: 1/t2 up to 1e4 v, noise at least 1e-3 of the signal's variance."""
    n = int(rng.integers(1, 6))
    for d, form in ((n + 3, DualLikelihood), (max(1, n - trial), PrimalLikelihood)):
        X = rng.standard_normal((n, d))
        if kind != "random":
            X = designs.ill_conditioned(rng, kind, n, d)
        slab = 10 ** rng.uniform(-1, 1, d)
        y, noise = designs.target(rng, X, slab, 1e-3)
        precision = 10 ** rng.uniform(-4, (-4, -2, 2)[trial], d) / slab
        shift = designs.shifts(rng, precision)
        true = oracles.condition(X, y, noise, shift, precision)
        gaussian = condition(form, columns, X, y, noise, slab, shift, precision)
        np.testing.assert_allclose(moments(gaussian)[1], true["variance"], rtol=1e-6)


@pytest.mark.parametrize("columns", [dense, sparse])
@pytest.mark.parametrize("kind", ["random", *designs.ILL_CONDITIONED])
@pytest.mark.parametrize("lowest", [-2, -4])
def test_variances_of_the_dual_form_obey_the_bound(rng, columns, kind, lowest):
    """:eq:`dual-variance`: relative error at most a modest multiple of u lambda_max(C) / s2.

    Not of u kappa(C): where one feature carries a direction of C alone, the error exceeds that.
    """
    for noise_share in (1e-2, 1e-4, 1e-6, 1e-9):
        n = int(rng.integers(1, 6))
        d = n + int(rng.integers(1, 4))
        X = rng.standard_normal((n, d))
        if kind != "random":
            X = designs.ill_conditioned(rng, kind, n, d)
        slab = 10 ** rng.uniform(-1, 1, d)
        y, noise = designs.target(rng, X, slab, noise_share)
        precision = designs.precisions(rng, slab, lowest)
        shift = designs.shifts(rng, precision)
        true = oracles.condition(X, y, noise, shift, precision)
        gaussian = condition(DualLikelihood, columns, X, y, noise, slab, shift, precision)
        error = np.abs(moments(gaussian)[1] / true["variance"] - 1)
        assert error.max() <= 10 * UNIT * lambda_max(X, noise, precision) / noise


@every_form
@pytest.mark.parametrize("sites", ["positive", "negative"])
def test_derivatives_of_log_norm_are_moments(rng, form, columns, shape, sites):
    """d log Z / d t1 = E[w] and d log Z / d t2 = -E[w^2]/2, by central differences."""
    X, y, noise, slab, shift, precision = drawn(rng, shape, sites)
    gaussian = condition(form, columns, X, y, noise, slab, shift, precision)
    mean, variance = moments(gaussian)
    j = int(rng.integers(shape[1]))
    unit = np.eye(shape[1])[j]
    e = 1e-4 / np.sqrt(variance[j])

    def log_norm(by_shift, by_precision):
        sites = shift + by_shift * unit, precision + by_precision * unit
        return condition(form, columns, X, y, noise, slab, *sites).log_norm

    difference = (log_norm(e, 0) - log_norm(-e, 0)) / (2 * e)
    size = np.abs(mean[j]) + np.sqrt(variance[j])
    rounding = 1e-11 * (1 + abs(gaussian.log_norm)) / e
    assert abs(difference - mean[j]) <= 1e-6 * size + rounding
    e = 1e-4 / size**2
    difference = (log_norm(0, e) - log_norm(0, -e)) / (2 * e)
    rounding = 1e-11 * (1 + abs(gaussian.log_norm)) / e
    assert abs(difference + (mean[j] ** 2 + variance[j]) / 2) <= 1e-6 * size**2 + rounding


@pytest.mark.parametrize("shape", [(4, 9), (9, 4)])
@pytest.mark.parametrize("sites", ["positive", "negative"])
def test_memory_layout_does_not_matter(rng, read_only, shape, sites):
    """C, Fortran, strided, backwards, read-only: the same Q; float32 as float64 of its values."""
    X, y, noise, slab, shift, precision = drawn(rng, shape, sites)
    X = X.astype(np.float32)
    wide = np.full((2 * shape[0], 3 * shape[1]), np.nan)
    wide[::2, ::3] = X
    layouts = {
        "C": np.array(X, dtype=float, order="C"),
        "F": np.array(X, dtype=float, order="F"),
        "strided": wide[::2, ::3],
        "backwards": X[::-1, ::-1].astype(float)[::-1, ::-1],
        "float32": X,
        "float32 F": np.asfortranarray(X),
    }
    reference = None
    for name, layout in layouts.items():
        likelihood = gaussian_likelihood(dense(read_only(layout)), read_only(y), noise, 1 / slab)
        gaussian = likelihood.condition(Natural(read_only(shift), read_only(precision)))
        got = (*moments(gaussian), gaussian.covariance_rows(np.array([0, 2])), gaussian.log_norm)
        reference = reference or got
        for ours, theirs in zip(got, reference, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=name)


# ---- where digits are lost


def spied(monkeypatch, module, name):
    """Count the calls of a function."""
    calls, original = [], getattr(module, name)

    def counted(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, counted)
    return calls


def troubled(rng, kind, n, d, noise_share, lowest=-2.0, gap=None):
    """An ill-conditioned problem with positive sites and shifts of their size."""
    X = designs.ill_conditioned(rng, kind, n, d, gap)
    slab = 10 ** rng.uniform(-1, 1, d)
    y, noise = designs.target(rng, X, slab, noise_share)
    precision = designs.precisions(rng, slab, lowest)
    shift = np.sqrt(precision) * rng.standard_normal(d)
    return X, y, noise, slab, shift, precision


def errors_and_rounding(gaussian, true, slab):
    """Largest error of a moment and largest rounding reported, in the certificate's units."""
    mean, variance = moments(gaussian)
    by_mean = np.abs(mean - true["mean"]) / np.sqrt(slab)
    by_variance = np.abs(variance - true["variance"]) / slab
    if gaussian.rounding is None:
        return max(by_mean.max(), by_variance.max()), 0.0
    lost_mean = np.asarray(gaussian.rounding.mean) / np.sqrt(slab)
    lost_variance = np.asarray(gaussian.rounding.variance) / slab
    return max(by_mean.max(), by_variance.max()), max(lost_mean.max(), lost_variance.max())


@pytest.mark.parametrize("kind", ["duplicates", "constant", "nearly collinear"])
@pytest.mark.parametrize("columns", [dense, sparse, strict])
@pytest.mark.parametrize("shape", [(6, 3), (4, 4)])
def test_collinear_columns_are_rotated(rng, kind, columns, shape):
    """Where X'X has lost its digits the d x d form gives way to d rows, and Q is right."""
    X, y, noise, slab, shift, precision = troubled(rng, kind, *shape, 1e-14, gap=1e-7)
    gaussian = condition(PrimalLikelihood, columns, X, y, noise, slab, shift, precision)
    assert isinstance(gaussian, DualGaussian)
    true = oracles.condition(X, y, noise, shift, precision, dps=80)
    np.testing.assert_allclose(moments(gaussian)[1], true["variance"], rtol=1e-4)
    assert gaussian.log_norm == pytest.approx(true["log_norm"], rel=1e-6)
    error, reported = errors_and_rounding(gaussian, true, slab)
    assert error <= 1e-6
    assert error <= 10 * reported + 1e-9


def test_rotation_keeps_negative_sites(rng):
    """The rotated form lifts and takes back like any dual form; log Z keeps what it drops."""
    X, y, noise, slab, shift, precision = troubled(rng, "duplicates", 6, 3, 1e-14, lowest=0.0)
    precision[1] = 0.0
    variance = oracles.condition(X, y, noise, shift, precision)["variance"][1]
    precision[1] = -0.5 / variance
    gaussian = condition(PrimalLikelihood, dense, X, y, noise, slab, shift, precision)
    assert isinstance(gaussian, DualGaussian)
    true = oracles.condition(X, y, noise, shift, precision)
    np.testing.assert_allclose(moments(gaussian)[1], true["variance"], rtol=1e-6)
    np.testing.assert_allclose(moments(gaussian)[0], true["mean"], rtol=1e-6, atol=1e-8)
    assert gaussian.log_norm == pytest.approx(true["log_norm"], rel=1e-9)


@pytest.mark.parametrize("columns", [dense, strict])
@pytest.mark.parametrize("trial", range(4))
def test_floor_keeps_positive_sites_proper(rng, monkeypatch, columns, trial):
    """:eq:`psd-floor`: noise below the rounding of X D X'; Q exists, and says what it is worth."""
    calls = spied(monkeypatch, np.linalg, "eigh")
    X, y, noise, slab, shift, precision = troubled(rng, "duplicates", 5, 8, 1e-19)
    gaussian = condition(DualLikelihood, columns, X, y, noise, slab, shift, precision)
    assert calls, "the factorisation as it is has to fail here"
    mean, variance = moments(gaussian)
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    true = oracles.condition(X, y, noise, shift, precision, dps=80)
    error, reported = errors_and_rounding(gaussian, true, slab)
    assert reported > 1e-4, "nobody may take this for an answer"
    assert error <= 10 * reported


@pytest.mark.parametrize("kind", ["random", *designs.ILL_CONDITIONED])
@pytest.mark.parametrize("noise_share", [1e-6, 1e-9, 1e-12])
def test_positive_sites_never_fail(rng, kind, noise_share):
    """A matrix that is positive definite on paper is taken for one, and variances are positive."""
    for lowest in (-4, -2, 2) * 10:
        n = int(rng.integers(2, 12))
        d = n + int(rng.integers(1, 12))
        X = rng.standard_normal((n, d))
        if kind != "random":
            X = designs.ill_conditioned(rng, kind, n, d)
        slab = 10 ** rng.uniform(-1, 1, d)
        y, noise = designs.target(rng, X, slab, noise_share)
        precision = designs.precisions(rng, slab, lowest)
        gaussian = condition(DualLikelihood, dense, X, y, noise, slab, 0 * slab, precision)
        assert (gaussian.moments.variance > 0).all()


@pytest.mark.parametrize("form", [DualLikelihood, PrimalLikelihood])
@pytest.mark.parametrize("kind", designs.ILL_CONDITIONED)
@pytest.mark.parametrize("noise_share", [1e-4, 1e-8, 1e-11, 1e-13])
def test_rounding_covers_the_error(rng, form, kind, noise_share):
    """:eq:`refinement`: what the certificate adds is no less than a tenth of what is wrong."""
    for _ in range(4):
        n = int(rng.integers(2, 5))
        d = n + 2 if form is DualLikelihood else n
        X, y, noise, slab, shift, precision = troubled(rng, kind, n, d, noise_share)
        gaussian = condition(form, dense, X, y, noise, slab, shift, precision)
        true = oracles.condition(X, y, noise, shift, precision, dps=60)
        error, reported = errors_and_rounding(gaussian, true, slab)
        assert error <= 10 * reported + 1e-6


@pytest.mark.parametrize("form", [DualLikelihood, PrimalLikelihood])
def test_well_conditioned_problems_report_no_rounding(rng, form):
    X, y, noise, slab, shift, precision = drawn(rng, (5, 5), "positive")
    assert condition(form, dense, X, y, noise, slab, shift, precision).rounding is None


@pytest.mark.parametrize("kind", ["nearly collinear", "constant"])
def test_refinement_brings_back_digits_of_the_mean(rng, kind):
    """:eq:`refinement`: the step from the data reaches what the Gram matrix has lost."""
    before, after = [], []
    for _ in range(20):
        X, y, noise, slab, shift, precision = troubled(rng, kind, 6, 3, 1e-7, gap=1e-4)
        gaussian = condition(PrimalLikelihood, dense, X, y, noise, slab, shift, precision)
        if not isinstance(gaussian, PrimalGaussian) or gaussian.rounding is None:
            continue
        true = oracles.condition(X, y, noise, shift, precision, dps=60)["mean"]
        plain = gaussian.times_covariance(gaussian.likelihood.pull + shift)
        before.append(np.abs(plain - true).max())
        after.append(np.abs(gaussian.moments.mean - true).max())
    assert before, "none of the cases was in need of refinement"
    assert max(after) <= 0.05 * max(before) + 1e-14


def test_strong_features_keep_their_variance(rng):
    """:eq:`lift` to the precision of the data where |V_i|^2 rounds to 1: nothing turns to zero."""
    X, y, _, slab = designs.regression(rng, 3, 5)
    X[:, 0] *= 1e7
    noise, precision = 1e-4, 1 / slab
    true = oracles.condition(X, y, noise, 0 * slab, precision)
    assert true["variance"][0] < 1e-12 * slab[0]
    gaussian = condition(DualLikelihood, dense, X, y, noise, slab, 0 * slab, precision)
    assert 0 in gaussian.lifted
    np.testing.assert_allclose(gaussian.moments.variance, true["variance"], rtol=1e-6)


# ---- draws


def assert_draws_have_moments(draws, mean, covariance):
    """Within five standard errors, entry by entry."""
    size = len(draws)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) <= 5 * sd / np.sqrt(size)).all()
    centred = draws - mean
    error = np.sqrt((np.outer(sd**2, sd**2) + covariance**2) / size)
    assert (np.abs(centred.T @ centred / size - covariance) <= 5 * error).all()


@every_form
@pytest.mark.parametrize("sites", ["positive", "negative"])
def test_draws_come_from_q(rng, form, columns, shape, sites):
    """:eq:`joint-sample`, lifted features included."""
    X, y, noise, slab, shift, precision = drawn(rng, shape, sites)
    gaussian = condition(form, columns, X, y, noise, slab, shift, precision)
    draws = np.asarray(gaussian.sample(20_000, np.random.default_rng(5)))
    assert draws.shape == (20_000, shape[1])
    true = oracles.condition_dense(X, y, noise, shift, precision)
    assert_draws_have_moments(draws, true["mean"], true["covariance"])
    assert gaussian.sample(0, rng).shape == (0, shape[1])


def test_sites_alone_are_q_without_data(rng):
    """What is shown where conditioning fails is what X = 0 would give, but for the density of y."""
    precision = np.array([0.5, 2.0, 30.0])
    shift = rng.standard_normal(3)
    alone = SitesAlone(Natural(shift, precision))
    y, noise = np.zeros(4), 1 / (2 * np.pi)  # of density 1 under the noise
    q = condition(PrimalLikelihood, dense, np.zeros((4, 3)), y, noise, np.ones(3), shift, precision)
    rows, vector, indices = rng.standard_normal((2, 3)), rng.standard_normal(3), np.array([2, 0])
    for ours, theirs in (
        (alone.moments.mean, q.moments.mean),
        (alone.moments.variance, q.moments.variance),
        (alone.log_norm, q.log_norm),
        (alone.covariance_rows(indices), q.covariance_rows(indices)),
        (alone.covariance(indices), q.covariance(indices)),
        (alone.times_covariance(vector), q.times_covariance(vector)),
        (alone.projected_variance(rows), q.projected_variance(rows)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15)
    draws = alone.sample(20_000, np.random.default_rng(5))
    assert_draws_have_moments(draws, shift / precision, np.diag(1 / precision))

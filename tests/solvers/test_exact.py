"""Enumeration equals the sum over supports, written out, and draws from what it finds."""

import itertools
import math

import array_api_strict
import numpy as np
import oracles
import pytest
from fits import Case, moments_of, random_case

import epslab as es


def assert_equals_naive(case, rtol=1e-9, dps=None):
    """Everything that enumeration returns, against the loop over supports."""
    truth = oracles.enumerate_naive(*case.args, dps=dps)
    result = case.solve(es.ExactEnumeration())
    unit = np.sqrt(np.broadcast_to(case.slab_variance, case.X.shape[1]))
    probability = result.posterior.inclusion_probability
    np.testing.assert_allclose(probability, truth["inclusion_probability"], rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(result.posterior.mean / unit, truth["mean"] / unit, atol=rtol)
    np.testing.assert_allclose(result.posterior.variance, truth["variance"], rtol=rtol)
    covariance = result.posterior.covariance(range(len(unit)))
    scale = np.sqrt(np.outer(truth["variance"], truth["variance"])) + 1e-300
    np.testing.assert_allclose(covariance / scale, truth["covariance"] / scale, atol=rtol)
    assert result.log_evidence == pytest.approx(truth["log_evidence"], rel=rtol)
    assert result.converged
    assert (result.residual, result.n_active, result.n_iter) == (0.0, 0, 0)
    return result


@pytest.mark.parametrize(("n", "d"), [(14, 9), (8, 8), (4, 10), (1, 6), (20, 1), (3, 2)])
@pytest.mark.parametrize("noise_sd", [1.0, 0.1])
def test_equals_the_loop_over_supports(n, d, noise_sd, rng):
    """Evidence, probabilities, means, covariance: :eq:`support-evidence`."""
    assert_equals_naive(random_case(rng, n, d, noise_sd))


@pytest.mark.parametrize(("n", "d"), [(12, 7), (3, 7)])
def test_forced_features(n, d, rng):
    """Always in or always out: half of the supports have no mass, :eq:`support-evidence`."""
    inclusion = np.array([0.3, 1.0, 0.0, 0.5, 1.0, 0.1, 0.0])
    case = random_case(rng, n, d).but(inclusion=inclusion)
    result = assert_equals_naive(case)
    np.testing.assert_array_equal(result.posterior.mean[inclusion == 0], [0, 0])
    np.testing.assert_array_equal(
        result.posterior.inclusion_probability[[1, 2, 4, 6]], [1, 0, 1, 0]
    )
    draws = result.posterior.sample(50, 0)
    assert (draws[:, inclusion == 0] == 0).all()
    assert (draws[:, inclusion == 1] != 0).all()


@pytest.mark.parametrize("inclusion", [0.0, 1.0])
def test_nothing_in_question(inclusion, rng):
    assert_equals_naive(random_case(rng, 6, 4).but(inclusion=inclusion))


@pytest.mark.parametrize("n", [3, 8])
def test_duplicated_and_constant_columns(n, rng):
    """Columns that no data can tell apart, and columns that no data can tell of."""
    case = random_case(rng, n, 8)
    X = case.X.copy()
    X[:, 3] = X[:, 1]
    X[:, 4] = -2.5 * X[:, 1]
    X[:, 5] = 0.0
    X[:, 6] = 1.0
    X[:, 7] = 0.0
    case = case.but(X=X)
    result = assert_equals_naive(case)
    pip = result.posterior.inclusion_probability
    np.testing.assert_allclose(pip[[5, 7]], case.inclusion[[5, 7]], rtol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(7, 4), (3, 5)])
@pytest.mark.parametrize("noise_sd", [1e-3, 1e-5])
def test_tiny_noise(n, d, noise_sd, rng):
    """In extended precision, since a float64 loop loses what is asked for here."""
    assert_equals_naive(random_case(rng, n, d, noise_sd), rtol=1e-7, dps=60)


@pytest.mark.parametrize("inclusion", [1e-6, 1 - 1e-9])
def test_extreme_inclusion(inclusion, rng):
    case = random_case(rng, 6, 5).but(inclusion=inclusion)
    assert_equals_naive(case, rtol=1e-8, dps=40)


def enumerate_by_qr(case):
    """Evidence, probabilities and means from one orthogonal factorisation per support.

    :eq:`support-evidence` without the squares that lose digits at tiny noise: the factor of
    [X_s V^(1/2) / s; I] gives the determinant, its residual y'C^-1 y.
    """
    s = math.sqrt(case.noise_variance)
    n, d = case.X.shape
    root = np.sqrt(case.slab_variance)
    log_mass, found, means = [], [], []
    for support in itertools.product((False, True), repeat=d):
        chosen = np.array(support)
        k = int(chosen.sum())
        stacked = np.vstack([case.X[:, chosen] * root[chosen] / s, np.eye(k)])
        target = np.concatenate([case.y / s, np.zeros(k)])
        Q, R = np.linalg.qr(stacked)
        unmet = target - Q @ (Q.T @ target)
        prior = np.where(chosen, np.log(case.inclusion), np.log1p(-case.inclusion)).sum()
        log_det = np.log(np.abs(np.diag(R))).sum()
        log_mass.append(prior - log_det - unmet @ unmet / 2)
        found.append(chosen)
        mean = np.zeros(d)
        mean[chosen] = root[chosen] * np.linalg.solve(R, Q.T @ target)
        means.append(mean)
    top = max(log_mass)
    weights = np.exp(np.array(log_mass) - top)
    total = weights.sum()
    log_evidence = top + math.log(total) - n / 2 * math.log(2 * math.pi * s**2)
    return log_evidence, weights @ np.array(found) / total, weights @ np.array(means) / total


@pytest.mark.parametrize(("n", "d"), [(9, 14), (20, 13)])
def test_no_drift_over_many_updates(n, d, rng):
    """A leaf is d updates of :eq:`grow` from the root; at sigma = 1e-5 none may leave a trace."""
    case = random_case(rng, n, d, 1e-5)
    log_evidence, probability, mean = enumerate_by_qr(case)
    result = case.solve(es.ExactEnumeration())
    assert result.log_evidence == pytest.approx(log_evidence, rel=1e-10, abs=1e-6)
    np.testing.assert_allclose(result.posterior.inclusion_probability, probability, atol=1e-10)
    np.testing.assert_allclose(result.posterior.mean, mean, atol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(9, 5), (3, 6)])
def test_one_more_feature(n, d, rng):
    """:eq:`grow`: the gain in evidence when feature j joins features that are all in."""
    case = random_case(rng, n, d)
    s2, v = case.noise_variance, case.slab_variance
    for j in range(d):
        others = (rng.random(d) < 0.5) & (np.arange(d) != j)
        K = np.linalg.inv(s2 * np.eye(n) + (case.X[:, others] * v[others]) @ case.X[:, others].T)
        x = case.X[:, j]
        q, r = x @ K @ x, x @ K @ case.y
        gain = -math.log1p(v[j] * q) / 2 + v[j] / (1 + v[j] * q) * r**2 / 2
        with_it = others | (np.arange(d) == j)
        out, into = (
            case.but(inclusion=chosen.astype(float)).solve(es.ExactEnumeration())
            for chosen in (others, with_it)
        )
        assert into.log_evidence - out.log_evidence == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(9, 5), (3, 6)])
def test_posterior_is_the_mixture_over_one_feature(n, d, rng):
    """:eq:`fold`: with feature j in and with it out, weighed by prior and evidence."""
    case = random_case(rng, n, d)
    whole = case.solve(es.ExactEnumeration())
    for j in range(d):
        p = case.inclusion[j]
        settled = [case.inclusion.copy(), case.inclusion.copy()]
        settled[0][j], settled[1][j] = 0.0, 1.0
        parts = [case.but(inclusion=s).solve(es.ExactEnumeration()) for s in settled]
        mass = np.array([(1 - p), p]) * np.exp([part.log_evidence for part in parts])
        assert math.log(mass.sum()) == pytest.approx(whole.log_evidence, abs=1e-9)
        weights = mass / mass.sum()
        assert whole.posterior.inclusion_probability[j] == pytest.approx(weights[1], rel=1e-9)
        means = np.array([part.posterior.mean for part in parts])
        np.testing.assert_allclose(whole.posterior.mean, weights @ means, atol=1e-11)
        covariances = np.array([part.posterior.covariance(range(d)) for part in parts])
        jump = means[1] - means[0]
        mixed = np.tensordot(weights, covariances, 1) + weights[0] * weights[1] * np.outer(
            jump, jump
        )
        np.testing.assert_allclose(whole.posterior.covariance(range(d)), mixed, atol=1e-11)


@pytest.mark.parametrize(("n", "d"), [(12, 4), (3, 6)])
def test_draws_are_exact(n, d, rng):
    """:eq:`support-sampling`: frequencies, means and covariance within five standard errors."""
    case = random_case(rng, n, d).but(inclusion=np.full(d, 0.4))
    result = case.solve(es.ExactEnumeration())
    size = 40000
    draws = result.posterior.sample(size, random_state=0)
    assert draws.shape == (size, d)
    np.testing.assert_array_equal(draws, result.posterior.sample(size, random_state=0))
    pip, mean = result.posterior.inclusion_probability, result.posterior.mean
    frequency_error = np.sqrt(pip * (1 - pip) / size) + 1e-4
    assert (np.abs((draws != 0).mean(axis=0) - pip) <= 5 * frequency_error).all()
    assert (np.abs(draws.mean(axis=0) - mean) <= 5 * draws.std(axis=0) / math.sqrt(size)).all()
    covariance = result.posterior.covariance(range(d))
    off = draws - mean
    for i in range(d):
        for j in range(d):
            product = off[:, i] * off[:, j]
            error = product.std() / math.sqrt(size)
            assert abs(product.mean() - covariance[i, j]) <= 5 * error


def test_supports_drawn_have_their_probabilities(rng):
    """:eq:`support-sampling`: whole supports, not only each feature by itself."""
    case = random_case(rng, 3, 4, 0.5).but(inclusion=np.array([0.5, 0.3, 1.0, 0.4]))
    result = case.solve(es.ExactEnumeration())
    size = 40000
    drawn = result.posterior.sample(size, random_state=1) != 0
    for support in itertools.product((0.0, 1.0), repeat=4):
        chosen = np.array(support)
        if not chosen[2]:
            assert not (drawn == chosen).all(axis=1).any()
            continue
        evidence = case.but(inclusion=chosen).solve(es.ExactEnumeration()).log_evidence
        prior = np.prod(np.where(chosen == 1, case.inclusion, 1 - case.inclusion))
        mass = prior * math.exp(evidence - result.log_evidence)
        error = math.sqrt(mass * (1 - mass) / size)
        assert abs((drawn == chosen).all(axis=1).mean() - mass) <= 5 * error + 1e-4


def test_no_draws():
    case = Case(np.eye(3), np.ones(3), 0.1, 0.5, 1.0)
    assert case.solve(es.ExactEnumeration()).posterior.sample(0, 0).shape == (0, 3)


@pytest.mark.parametrize("d", [30, 2000])
def test_refusal_names_the_cost(d, rng):
    """Beyond its limit enumeration says what it would take, and at once."""
    case = Case(rng.standard_normal((5, d)), rng.standard_normal(5), 1.0, 0.1, 1.0)
    wanted = rf"has {d} features.*at most 25.*2\^{d} .*(seconds|hours|days|years).*max_features"
    with pytest.raises(ValueError, match=wanted):
        case.solve(es.ExactEnumeration())


def test_limit_counts_features_in_question_only():
    """Those always in or always out cost nothing: :eq:`settled`."""
    X = np.vstack([np.eye(40), np.eye(40)])
    inclusion = np.concatenate([np.full(6, 0.5), np.ones(10), np.zeros(24)])
    case = Case(X, np.ones(80), 0.5, inclusion, 1.0)
    result = case.solve(es.ExactEnumeration(max_features=6))
    alone = [oracles.single_feature(X[:, j], case.y, 0.5, inclusion[j], 1.0) for j in (0, 6, 39)]
    for j, truth in zip((0, 6, 39), alone, strict=True):
        for name, values in moments_of(result).items():
            assert values[j] == pytest.approx(truth[name], abs=1e-12)
    with pytest.raises(ValueError, match="6 features in question"):
        case.solve(es.ExactEnumeration(max_features=5))


def test_start_has_no_meaning(rng):
    case = random_case(rng, 4, 3)
    with pytest.raises(ValueError, match="start"):
        case.solve(es.ExactEnumeration(), start=case.solve(es.ParallelEP()))


@pytest.mark.parametrize(("n", "d"), [(9, 5), (3, 6)])
def test_array_api_strict(n, d, rng):
    case = random_case(rng, n, d)
    inclusion = case.inclusion.copy()
    inclusion[1], inclusion[3] = 1.0, 0.0
    case = case.but(inclusion=inclusion)
    strict = case.but(X=array_api_strict.asarray(case.X), y=array_api_strict.asarray(case.y))
    result, other = case.solve(es.ExactEnumeration()), strict.solve(es.ExactEnumeration())
    for name, values in moments_of(result).items():
        found = getattr(other.posterior, name)
        assert found.__array_namespace__() is array_api_strict
        np.testing.assert_allclose(np.asarray(found), values, atol=1e-11)
    assert other.log_evidence == pytest.approx(result.log_evidence, abs=1e-11)
    draws = other.posterior.sample(100, random_state=3)
    np.testing.assert_allclose(
        np.asarray(draws), result.posterior.sample(100, random_state=3), atol=1e-9
    )


def test_a_coefficient_that_is_zero_for_certain_is_a_point_mass():
    """A variance that underflows: no NaN in the marginals, and no warning."""
    X = np.zeros((4, 2))
    X[0, 0] = X[1, 1] = 1e140
    prior = es.SpikeSlabPrior(1e-200, 1.0)
    problem = es.Problem(X, [1.0, 0.0, 0.0, 0.0], noise_variance=1e-10, prior=prior)
    found = es.solve(problem, es.ExactEnumeration())
    assert found.converged
    assert not np.isnan(found.marginals.shift).any()
    assert found.marginals.shift[1] == 0.0
    assert found.marginals.precision[1] == np.inf

"""What every solver gets right where the answer is known, and what every certificate means."""

import math

import numpy as np
import oracles
import pytest
from fits import (
    DOMAINS,
    EP_SOLVERS,
    Case,
    assert_same_posterior,
    moments_of,
    orthogonal_case,
    random_case,
)

import epslab as es

EXACT_AND_EP = (*EP_SOLVERS, es.ExactEnumeration)
ONE_FEATURE = (0.02, 0.025, 0.03, 0.05, 0.1)


def sharp(solver):
    """The solver at a tolerance that leaves an error below 1e-6 in what it computes.

    The marginals of DoubleLoopEP move, per outer step, by a small share of what they have left to
    go where the data decide little: at d = 1 and y = .02 a residual of 1e-9 leaves 1.6e-6 in the
    inclusion probability. So it is asked for a tenth of that.
    """
    if solver is es.ExactEnumeration:
        return solver()
    tol = 1e-10 if solver is es.DoubleLoopEP else 1e-9
    return solver(tol=tol, max_iter=5000)


def one_feature(y):
    return Case(np.ones((1, 1)), np.array([y]), 1e-4, 0.2, 1.0)


@pytest.mark.parametrize("solver", EXACT_AND_EP)
@pytest.mark.parametrize("y", ONE_FEATURE)
def test_one_feature_is_exact(solver, y):
    case = one_feature(y)
    truth = oracles.single_feature(*case.args)
    result = case.solve(sharp(solver))
    assert result.converged
    assert result.log_evidence == pytest.approx(truth["log_evidence"], abs=1e-6)
    for name, values in moments_of(result).items():
        np.testing.assert_allclose(values, [truth[name]], rtol=0, atol=1e-6, err_msg=name)


def test_one_feature_in_the_box_says_that_it_is_clipped():
    """The box costs truth, and says so: :eq:`box`, :eq:`clipped`.

    The paper's loop ends at an inclusion probability of .215 where the truth is .9985.
    """
    case = one_feature(0.05)
    result = case.solve(es.DoubleLoopEP(domain=es.Box(), tol=1e-9))
    assert result.converged
    assert result.n_active == 1
    assert math.isnan(result.log_evidence)
    assert float(result.posterior.inclusion_probability[0]) == pytest.approx(0.215, abs=1e-3)
    assert -result.energy > oracles.single_feature(*case.args)["log_evidence"] + 2.9


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(12, 5), (8, 8), (6, 6), (4, 7)])
@pytest.mark.parametrize("repeat", range(3))
def test_orthogonal_designs_are_exact(solver, n, d, repeat, rng):
    """The posterior factorises, and EP's fixed point is it: :eq:`stationarity`."""
    case = orthogonal_case(rng, n, d)
    result = case.solve(sharp(solver))
    assert result.converged
    assert_same_posterior(result, case.solve(es.ExactEnumeration()), atol=1e-6)


@pytest.mark.parametrize("solver", EXACT_AND_EP)
@pytest.mark.parametrize(("n", "d"), [(12, 5), (6, 6), (4, 9), (1, 3)])
def test_features_that_are_always_in_are_ridge(solver, n, d, rng):
    """:eq:`settled`, :eq:`model`: with p = 1 the posterior is Gaussian and no solver iterates."""
    case = random_case(rng, n, d).but(inclusion=1.0)
    truth = oracles.ridge(case.X, case.y, case.noise_variance, case.slab_variance)
    result = case.solve(sharp(solver))
    assert result.converged
    assert result.n_iter == 0
    np.testing.assert_allclose(result.posterior.mean, truth["mean"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.posterior.variance, np.diag(truth["covariance"]), rtol=1e-10)
    np.testing.assert_allclose(
        result.posterior.covariance(range(d)), truth["covariance"], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(result.posterior.inclusion_probability, np.ones(d))
    assert result.log_evidence == pytest.approx(truth["log_evidence"], rel=1e-11)


@pytest.mark.parametrize("solver", EXACT_AND_EP)
@pytest.mark.parametrize(("n", "d"), [(7, 3), (3, 7)])
def test_features_that_are_always_out_leave_noise(solver, n, d, rng):
    """:eq:`settled`: with p = 0 the coefficients are exactly zero and y is noise."""
    case = random_case(rng, n, d).but(inclusion=0.0)
    result = case.solve(sharp(solver))
    assert result.converged
    for name, values in moments_of(result).items():
        np.testing.assert_array_equal(values, np.zeros(d), err_msg=name)
    np.testing.assert_array_equal(result.posterior.covariance(range(d)), np.zeros((d, d)))
    np.testing.assert_array_equal(result.posterior.sample(5, 0), np.zeros((5, d)))
    noise = -n / 2 * math.log(2 * math.pi * case.noise_variance)
    noise -= case.y @ case.y / (2 * case.noise_variance)
    assert result.log_evidence == pytest.approx(noise, rel=1e-12)


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(10, 7), (7, 7), (4, 7)])
def test_settled_and_open_features_together(solver, n, d, rng):
    """:eq:`settled`: always in, always out, without information, and open features at once."""
    inclusion = np.array([1.0, 0.3, 0.0, 0.6, 1.0, 0.1, 0.0])
    case = orthogonal_case(rng, n, d).but(inclusion=inclusion)
    result = case.solve(sharp(solver))
    assert result.converged
    assert_same_posterior(result, case.solve(es.ExactEnumeration()), atol=1e-6)
    silent = ~case.X.any(axis=0) & (inclusion > 0)
    np.testing.assert_allclose(result.posterior.inclusion_probability[silent], inclusion[silent])
    prior_variance = inclusion[silent] * case.slab_variance[silent]
    np.testing.assert_allclose(result.posterior.variance[silent], prior_variance)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(15, 6), (8, 8), (6, 11), (2, 5), (1, 1)])
@pytest.mark.parametrize("noise_sd", [0.3, 0.01])
def test_certificate_is_true(solver, domain, n, d, noise_sd, rng):
    """Who says that it has converged has: :eq:`residual`, :eq:`clipped`, recomputed in mpmath."""
    for _ in range(3):
        case = random_case(rng, n, d, noise_sd)
        problem = case.problem()
        result = es.solve(problem, solver(tol=1e-6, max_iter=300, domain=domain))
        again = es.residual(problem, result.sites, result.marginals, domain)
        assert again == pytest.approx(result.residual, rel=1e-6, abs=1e-12)
        residual, n_active = case.certificate(result, dps=30)
        assert residual == pytest.approx(result.residual, rel=1e-6, abs=1e-10)
        assert n_active == result.n_active
        assert result.converged == (result.residual <= 1e-6)
        if result.converged:
            assert residual <= 1e-6 + 1e-10


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(15, 6), (6, 11)])
def test_energy_is_that_of_sites_and_marginals(solver, domain, n, d, rng):
    """:eq:`energy` of the result, and minus it as evidence where no constraint is active."""
    case = random_case(rng, n, d)
    problem = case.problem()
    result = es.solve(problem, solver(domain=domain))
    assert result.energy == pytest.approx(case.energy(result, dps=30), rel=1e-10)
    assert result.energy == pytest.approx(es.energy(problem, result.sites, result.marginals))
    if result.n_active:
        assert math.isnan(result.log_evidence)
    else:
        assert result.log_evidence == -result.energy


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(20, 6), (7, 7), (6, 9)])
def test_solvers_agree_where_they_converge_to_one_fixed_point(solver, n, d):
    """One fixed point, three ways there, on designs without several: :eq:`site-target`."""
    case = random_case(np.random.default_rng(4), n, d)
    reference = case.solve(es.ParallelEP(tol=1e-10, max_iter=5000))
    result = case.solve(sharp(solver))
    assert reference.converged
    assert result.converged
    assert_same_posterior(result, reference, atol=1e-6)
